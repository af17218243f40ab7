package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// operation is what one caller asked about one todo, and what it was told. Moments
// are nanoseconds of the one clock that clients and database share here.
type operation struct {
	Who      string `json:"who"`
	Kind     string `json:"kind"` // the tool
	Invoked  int64  `json:"invoked"`
	Returned int64  `json:"returned,omitempty"` // 0 when there was no answer
	Outcome  string `json:"outcome,omitempty"`  // ok, unknown, or the code of a refusal

	Lane    string `json:"lane,omitempty"` // owner and queue
	Line    string `json:"line,omitempty"` // of a creation
	Key     string `json:"key,omitempty"`
	Todo    string `json:"todo,omitempty"`
	Token   string `json:"token,omitempty"`
	ClaimID string `json:"claim_id,omitempty"`
	Said    string `json:"said,omitempty"` // what was sent: title, result, error, reason, question

	State        string `json:"state,omitempty"`
	Version      int64  `json:"version,omitempty"`
	Attempt      int    `json:"attempt,omitempty"`
	Priority     int    `json:"priority,omitempty"`
	Lease        int64  `json:"lease,omitempty"`   // length
	Expires      int64  `json:"expires,omitempty"` // of the lease
	Later        bool   `json:"later,omitempty"`   // a creation with not_before
	Deduplicated bool   `json:"deduplicated,omitempty"`
	Read         string `json:"read,omitempty"` // what a claim showed: the title
}

// Outcomes that are no codes of refusals.
const (
	outcomeOK      = "ok"
	outcomeUnknown = "unknown" // no answer, or one that says nothing about the effect
)

// outcomeInternal is a fault of the server's, which says nothing about the effect
// either.
const outcomeInternal = "internal"

func (o *operation) ok() bool { return o.Outcome == outcomeOK }

// mayHaveActed reports whether the operation took effect for all that is known.
func (o *operation) mayHaveActed() bool {
	return o.Outcome == outcomeOK || o.Outcome == outcomeUnknown || o.Outcome == outcomeInternal
}

// returned is when the answer was there; for ever ahead when it never was.
func (o *operation) returned() int64 {
	if o.Returned == 0 {
		return 1<<63 - 1
	}
	return o.Returned
}

// final is a todo as the database has it in the end.
type final struct {
	Todo, Lane, Title, State, Result string
	Version                          int64
	Attempt                          int
}

// disturbance is a time in which a server process or the database was going down
// or coming up.
type disturbance struct{ From, To int64 }

// history is everything that is known of a run.
type history struct {
	Operations   []operation
	Finals       []final
	Disturbances []disturbance
	MaxOpen      int // of each line
	MaxAttempts  int
}

// journal keeps operations where they outlive the process: each is written before
// it is sent, and again once it was answered. A killed process loses nothing that
// it has told.
type journal struct {
	mu  sync.Mutex
	out io.Writer
	n   int64
}

// entry is a line of a journal. Of one number there are one or two.
type entry struct {
	N          int64       `json:"n"`
	Answered   bool        `json:"answered,omitempty"`
	Operations []operation `json:"ops"`
}

func (j *journal) write(e entry) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	// One write a line: a process that is killed leaves whole lines and at most
	// one part of a line.
	_, err = j.out.Write(append(b, '\n'))
	return err
}

// record writes the operations, calls f, which fills in the outcomes and may
// return other operations in their place, and writes those. It returns them.
func (j *journal) record(ops []operation, f func([]operation) []operation) ([]operation, error) {
	j.mu.Lock()
	j.n++
	n := j.n
	now := time.Now().UnixNano()
	for i := range ops {
		ops[i].Invoked = now
	}
	err := j.write(entry{N: n, Operations: ops})
	j.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	ops = f(ops)
	now = time.Now().UnixNano()
	for i := range ops {
		if ops[i].Outcome != outcomeUnknown {
			ops[i].Returned = now
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.write(entry{N: n, Answered: true, Operations: ops}); err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return ops, nil
}

// readJournal returns the operations of a journal; those without an answer are
// unknown. A last line that was not finished is none.
func readJournal(path string) ([]operation, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readEntries(f)
}

func readEntries(r io.Reader) ([]operation, error) {
	var out []operation
	open := map[int64][]operation{}
	in := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		var e entry
		if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
			return nil, fmt.Errorf("journal: %w", err)
		}
		if !e.Answered {
			open[e.N] = e.Operations
			continue
		}
		delete(open, e.N)
		out = append(out, e.Operations...)
	}
	for _, ops := range open {
		for _, o := range ops {
			o.Outcome = outcomeUnknown
			out = append(out, o)
		}
	}
	return out, nil
}
