package cri

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// The earliest pause of all that failed counts, however deep the error is.
func TestPausedUntil(t *testing.T) {
	at := time.Unix(100, 0)
	soon, late := &PausedError{Err: errors.New("soon"), Until: at},
		&PausedError{Err: errors.New("late"), Until: at.Add(time.Minute)}
	for _, test := range []struct {
		err  error
		want time.Time
	}{
		{nil, time.Time{}},
		{errors.New("whatever"), time.Time{}},
		{soon, at},
		{fmt.Errorf("volume: %w", soon), at},
		{&StartError{Err: errors.Join(errors.New("whatever"), fmt.Errorf("volume: %w", late), soon)}, at},
	} {
		if got := PausedUntil(test.err); !got.Equal(test.want) {
			t.Errorf("%v: paused until %v, want %v", test.err, got, test.want)
		}
	}
}
