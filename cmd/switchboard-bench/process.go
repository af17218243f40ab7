package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// process is a child of ours that speaks one JSON value a line. It ends when its
// standard input does, so none outlives this process.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	done chan struct{}

	mu   sync.Mutex
	err  error
	tail []byte // what it said last on standard error
}

// program is what children run: this program, or in tests the test binary.
var program = os.Executable

// start runs a subcommand of this program and sends it the first line.
func start(command string, first any) (*process, error) {
	path, err := program()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(path, command) //nolint:noctx // ended by stop and kill
	p := &process{cmd: cmd, done: make(chan struct{})}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReaderSize(out, 1<<16)
	p.cmd.Stderr = p
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", command, err)
	}
	go func() {
		defer close(p.done)
		err := p.cmd.Wait()
		p.mu.Lock()
		p.err = err
		p.mu.Unlock()
	}()
	if err := p.send(first); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// Write keeps the end of what the child says on standard error.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tail = append(p.tail, b...)
	if over := len(p.tail) - 4<<10; over > 0 {
		p.tail = p.tail[over:]
	}
	return len(b), nil
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.tail)
}

func (p *process) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("speak to %s: %w: %s", p.cmd.Args[1], err, p.said())
	}
	return nil
}

// receive reads the next line into v; ctx bounds the wait by killing the child.
func (p *process) receive(ctx context.Context, v any) error {
	stop := context.AfterFunc(ctx, p.kill)
	defer stop()
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s ended early: %w: %s", p.cmd.Args[1], err, p.said())
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("%s said %.200q: %w", p.cmd.Args[1], line, err)
	}
	return nil
}

// kill ends the child at once (SIGKILL) and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop asks the child to end and waits a while before it is killed.
func (p *process) stop() error {
	_ = p.in.Close()
	t := time.NewTimer(15 * time.Second)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		p.kill()
		return fmt.Errorf("%s had to be killed: %s", p.cmd.Args[1], p.said())
	}
	return nil
}

// errStopped says that the parent closed our standard input.
var errStopped = errors.New("told to stop")

// underParent is the child's side: it reads the first line into v and returns a
// context that ends when the parent closes our standard input, and a function
// that says something to the parent.
func underParent(ctx context.Context, v any) (context.Context, func(any) error, error) {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, nil, fmt.Errorf("no first line: %w", err)
	}
	if err := json.Unmarshal(line, v); err != nil {
		return nil, nil, fmt.Errorf("first line: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel(errStopped)
	}()
	var mu sync.Mutex
	return ctx, func(v any) error {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		_, err = os.Stdout.Write(append(b, '\n'))
		return err
	}, nil
}
