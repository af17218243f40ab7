package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// lean is a connection that writes its requests by hand and reads no more of an
// answer than its status, its length and its body.
type lean struct {
	conn net.Conn
	in   *bufio.Reader
	head []byte // of every request, up to the length
	out  []byte
	body []byte
}

func dialLean(ctx context.Context, t target) (*lean, error) {
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", t.Addr)
	if err != nil {
		return nil, err
	}
	head := "POST " + t.Path + " HTTP/1.1\r\nHost: " + t.Host + "\r\nAuthorization: Bearer " + t.Credential +
		"\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: " + mcpVersion + "\r\nContent-Length: "
	return &lean{conn: conn, in: bufio.NewReaderSize(conn, 4<<10), head: []byte(head)}, nil
}

func (l *lean) close() { _ = l.conn.Close() }

var errStatus = errors.New("unexpected status")

// call sends a request and reads its answer. The deadline of ctx counts; it is
// not watched for its end.
func (l *lean) call(ctx context.Context, body []byte) ([]byte, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := l.conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	if err := l.sendCall(body); err != nil {
		return nil, err
	}
	return l.receiveAnswer()
}

func (l *lean) sendCall(body []byte) error {
	l.out = append(l.out[:0], l.head...)
	l.out = strconv.AppendInt(l.out, int64(len(body)), 10)
	l.out = append(l.out, "\r\n\r\n"...)
	l.out = append(l.out, body...)
	_, err := l.conn.Write(l.out)
	return err
}

func (l *lean) receiveAnswer() ([]byte, error) {
	line, err := l.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	ok := bytes.HasPrefix(line, []byte("HTTP/1.1 200"))
	status := ""
	if !ok {
		status = string(bytes.TrimSpace(line))
	}
	length, chunked := -1, false
	for {
		line, err := l.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		if len(line) <= 2 {
			break
		}
		if v, ok := header(line, "content-length:"); ok {
			if length, err = strconv.Atoi(v); err != nil {
				return nil, fmt.Errorf("content-length: %w", err)
			}
		} else if v, ok := header(line, "transfer-encoding:"); ok {
			chunked = v == "chunked"
		}
	}
	l.body = l.body[:0]
	switch {
	case chunked:
		err = l.readChunks()
	case length >= 0:
		err = l.read(length)
	default:
		err = errors.New("an answer without length")
	}
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s: %.300s", errStatus, status, l.body)
	}
	return l.body, err
}

func (l *lean) read(n int) error {
	from := len(l.body)
	if cap(l.body) < from+n {
		l.body = append(make([]byte, 0, from+n), l.body...)
	}
	l.body = l.body[:from+n]
	_, err := io.ReadFull(l.in, l.body[from:])
	return err
}

func (l *lean) readChunks() error {
	for {
		line, err := l.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return fmt.Errorf("chunk: %w", err)
		}
		if err := l.read(int(n)); err != nil {
			return err
		}
		if _, err := l.in.Discard(2); err != nil || n == 0 {
			return err
		}
	}
}

// header is the value of the line if it is the header, whose name is lower case.
func header(line []byte, name string) (string, bool) {
	if len(line) < len(name) || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return "", false
	}
	return string(bytes.TrimSpace(line[len(name):])), true
}
