package csidriver

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Call is a call to the driver as the journal has it.
type Call struct {
	ID, Method string
	// Volume is the id of the call's volume; the name, when it is created.
	Volume string
	// Request and Response are the messages as JSON; no Response: it failed or did not end.
	Request, Response json.RawMessage `json:",omitempty"`
	Began, Ended      time.Time       `json:",omitzero"`
	// Code is the status of a call that has ended.
	Code    codes.Code `json:",omitempty"`
	Message string     `json:",omitempty"`
}

// Done reports whether the call has ended without an error.
func (c Call) Done() bool { return !c.Ended.IsZero() && c.Code == codes.OK }

// Field returns a text of the request, by its name in JSON, as volumeId or stagingTargetPath.
func (c Call) Field(name string) string {
	var fields map[string]any
	if json.Unmarshal(c.Request, &fields) != nil {
		return ""
	}
	text, _ := fields[name].(string)
	return text
}

type journal struct {
	mu    sync.Mutex // guards the fields below
	file  *os.File
	calls int
}

func journalFile(dir string) string { return filepath.Join(dir, "journal") }

func openJournal(dir string) (*journal, error) {
	file, err := os.OpenFile(journalFile(dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	return &journal{file: file}, err
}

// begin writes a call, and returns what writes its end.
func (j *journal) begin(method, volume string, req any) (end func(resp any, err error)) {
	c := Call{Method: method, Volume: volume, Request: message(req), Began: time.Now()}
	j.mu.Lock()
	j.calls++
	c.ID = fmt.Sprintf("%d-%d", os.Getpid(), j.calls)
	j.mu.Unlock()
	j.write(c)
	return func(resp any, err error) {
		if c.Ended = time.Now(); err == nil {
			c.Response = message(resp)
		}
		c.Code, c.Message = status.Code(err), status.Convert(err).Message()
		j.write(c)
	}
}

// write appends one line at once, which a killed driver leaves whole or not at all.
func (j *journal) write(c Call) {
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err) // all fields are texts
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.Write(append(raw, '\n')); err != nil {
		fmt.Fprintln(os.Stderr, "csidriver: write the journal:", err)
	}
}

func message(m any) json.RawMessage {
	is, ok := m.(proto.Message)
	if !ok {
		return nil
	}
	raw, err := protojson.Marshal(is)
	if err != nil {
		return nil
	}
	return raw
}

// maxLine bounds a line of the journal.
const maxLine = 1 << 20

// Calls returns the calls that the journal in dir has, in the order they began.
func Calls(dir string) ([]Call, error) {
	file, err := os.Open(journalFile(dir))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var calls []Call
	at := map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var c Call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("line %q of the journal: %w", lines.Text(), err)
		}
		key := c.ID + c.Began.String()
		if i, known := at[key]; known {
			calls[i] = c
			continue
		}
		at[key] = len(calls)
		calls = append(calls, c)
	}
	return calls, lines.Err()
}
