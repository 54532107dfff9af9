package mailbox

import (
	"context"
	"slices"
	"sync"
	"testing"
)

func TestOrderAndCoalescedWake(t *testing.T) {
	b := New[int]()
	for i := range 3 {
		b.Put(i)
	}
	<-b.Wake()
	select {
	case <-b.Wake():
		t.Fatal("three puts before a read gave more than one wake-up")
	default:
	}
	if got := b.Take(); !slices.Equal(got, []int{0, 1, 2}) {
		t.Fatalf("Take() = %v, want [0 1 2]", got)
	}
	if got := b.Take(); len(got) != 0 {
		t.Fatalf("second Take() = %v, want nothing", got)
	}
}

// A reader that drains after each wake-up sees every value, whoever puts when.
func TestNothingIsLost(t *testing.T) {
	const writers, each = 8, 200
	b := New[int]()
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for i := range each {
				b.Put(i)
			}
		})
	}
	got := 0
	for got < writers*each {
		<-b.Wake()
		got += len(b.Take())
	}
	wg.Wait()
	if extra := b.Take(); got != writers*each || len(extra) != 0 {
		t.Fatalf("read %d values and %d more, want %d", got, len(extra), writers*each)
	}
}

// Each hands on what was put before and since, in order, and returns with its context.
func TestEach(t *testing.T) {
	b := New[int]()
	b.Put(0)
	b.Put(1)
	ctx, cancel := context.WithCancel(t.Context())
	var got []int
	if err := b.Each(ctx, func(v int) {
		if got = append(got, v); v == 1 {
			b.Put(2)
		}
		if v == 2 {
			cancel()
		}
	}); err != nil {
		t.Error(err)
	}
	if !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("handed on %v", got)
	}
}
