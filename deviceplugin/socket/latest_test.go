package socket

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
)

// numbered is a stream whose messages are numbers from 1.
type numbered struct {
	grpc.ClientStream
	ctx   context.Context
	every time.Duration // between two messages
	last  int           // the stream ends after it; 0: never
	sent  int
	freed int
}

func (s *numbered) RecvMsg(m any) error {
	select {
	case <-time.After(s.every):
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
	if s.sent == s.last && s.last > 0 {
		return io.EOF
	}
	s.sent++
	// Smaller buffers are not pooled.
	data := binary.BigEndian.AppendUint64(make([]byte, 0, 4096), uint64(s.sent))
	data = data[:4096]
	m.(*Frame).Buffer = mem.NewBuffer(&data, s)
	return nil
}

// Get and Put are the pool of the messages.
func (s *numbered) Get(int) *[]byte { panic("not asked") }

func (s *numbered) Put(*[]byte) { s.freed++ }

// used returns the messages that Latest uses within some time, until use fails after some of them,
// and its error.
func (s *numbered) used(t *testing.T, within time.Duration, fails int) (used []int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	err = Latest(ctx, func(ctx context.Context) (grpc.ClientStream, error) {
		s.ctx = ctx
		return s, nil
	}, func(frame Frame) error {
		used = append(used, int(binary.BigEndian.Uint64(frame.ReadOnlyData())))
		if len(used) == fails {
			return errBad
		}
		return nil
	})
	if s.freed != s.sent {
		t.Errorf("of %d messages %d are freed", s.sent, s.freed)
	}
	return used, err
}

var errBad = errors.New("bad")

// All messages of a plugin that seldom speaks are used. Of one that speaks without a pause those are
// used that are the newest twice a second, and its last one.
func TestLatest(t *testing.T) {
	for _, tt := range []struct {
		name        string
		every       time.Duration
		last, fails int
		within      time.Duration
		want        []int // beyond the first 20, which are always used
		err         error
	}{
		{name: "seldom", every: time.Second, last: 30, within: time.Hour, err: io.EOF,
			want: []int{21, 22, 23, 24, 25, 26, 27, 28, 29, 30}},
		{name: "few at once", last: 20, within: time.Hour, err: io.EOF},
		{name: "without a pause", every: 10 * time.Millisecond, last: 171, within: time.Hour,
			err: io.EOF, want: []int{50, 100, 150, 171}},
		{name: "cancelled", every: 10 * time.Millisecond, within: 1600 * time.Millisecond,
			err: context.DeadlineExceeded, want: []int{50, 100, 150}},
		{name: "use fails", every: 10 * time.Millisecond, within: time.Hour, fails: 22,
			err: errBad, want: []int{50, 100}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &numbered{every: tt.every, last: tt.last}
			used, err := s.used(t, tt.within, tt.fails)
			if !errors.Is(err, tt.err) {
				t.Errorf("%s: it ends with %v", tt.name, err)
			}
			for i, n := range used[:20] {
				if n != i+1 {
					t.Errorf("%s: message %d is used as %d", tt.name, n, i+1)
				}
			}
			if !slices.Equal(used[20:], tt.want) {
				t.Errorf("%s: then %v is used, want %v", tt.name, used[20:], tt.want)
			}
		})
	}
}

// A stream that always has a message is read as often as the bound allows.
func TestReadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &numbered{}
		if _, err := s.used(t, 10*time.Second, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		most := (readsAtOnce + 10*readsASecond) / smallest
		if s.sent > most*101/100 || s.sent < most*99/100 {
			t.Errorf("%d messages are read, want about %d", s.sent, most)
		}
	})
}

// A stream that does not begin ends at once.
func TestLatestOfNoStream(t *testing.T) {
	err := Latest(t.Context(), func(context.Context) (grpc.ClientStream, error) { return nil, errBad }, nil)
	if !errors.Is(err, errBad) {
		t.Error(err)
	}
}
