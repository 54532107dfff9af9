package volume

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/volume/operation"
)

// gauges are volumes whose measurements end as the test says.
type gauges struct {
	rooms
	calls
	asking sync.Mutex // guards asked
	asked  map[string]int
	hangs  map[string]chan struct{}
	size   uint64
	err    error
}

func (g *gauges) look(t *testing.T, keys ...string) {
	t.Helper()
	var all []reading[diskusage.Room]
	for _, key := range keys {
		all = append(all, reading[diskusage.Room]{key: key, measure: func() (diskusage.Room, error) {
			g.asking.Lock()
			g.asked[key]++
			g.asking.Unlock()
			if wait := g.hangs[key]; wait != nil {
				<-wait
			}
			return diskusage.Room{Capacity: g.size}, g.err
		}})
	}
	g.rooms.look(t.Context(), &g.calls, all, func(string, time.Duration) {})
}

func (g *gauges) says(key string) string {
	a, is := g.of(key)
	if !is {
		return "nothing"
	}
	return fmt.Sprintf("%d, %v ago", a.value.Capacity, time.Since(a.at))
}

// A volume that hangs is asked once, waited for once, and keeps its last answer, until that is too
// old. It delays no other volume.
func TestRoomOfWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gauges{asked: map[string]int{}, hangs: map[string]chan struct{}{}, size: 7}
		g.look(t, "a", "b")
		release := make(chan struct{})
		g.hangs["a"] = release
		time.Sleep(time.Minute)
		for round, wait := range []time.Duration{measureWait, 0, 0} {
			g.size++
			began := time.Now()
			if g.look(t, "a", "b"); time.Since(began) != wait {
				t.Errorf("round %d took %v", round, time.Since(began))
			}
		}
		if g.asked["a"] != 2 || g.asked["b"] != 4 {
			t.Errorf("asked %v times", g.asked)
		}
		if a, b := g.says("a"), g.says("b"); a != "7, 1m2s ago" || b != "10, 0s ago" {
			t.Errorf("a has %s, b %s", a, b)
		}
		time.Sleep(answerLife)
		if a := g.says("a"); a != "nothing" {
			t.Errorf("later a has %s", a)
		}
		close(release)
		synctest.Wait()
		if a := g.says("a"); a != "10, 0s ago" {
			t.Errorf("after its answer a has %s", a)
		}
	})
}

// What hangs comes last, so that a round has the answers of the others, and a round ends although
// many hang.
func TestRoundsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gauges{asked: map[string]int{}, hangs: map[string]chan struct{}{}, size: 7}
		var keys []string
		for i := range 100 {
			keys = append(keys, fmt.Sprint("hangs ", i))
			g.hangs[keys[i]] = make(chan struct{})
		}
		keys = append(keys, "answers")
		for range 4 {
			began := time.Now()
			if g.look(t, keys...); time.Since(began) > roundWait+measureWait {
				t.Errorf("a round took %v", time.Since(began))
			}
		}
		if g.says("answers") == "nothing" {
			t.Errorf("nobody asked the one that answers in four rounds: %v", g.asked)
		}
		for key, times := range g.asked {
			if times != 1 && key != "answers" {
				t.Errorf("%s was asked %d times at once", key, times)
			}
			if g.hangs[key] != nil {
				close(g.hangs[key])
			}
		}
		clear(g.hangs)
		synctest.Wait()
		if g.look(t, "answers"); len(g.all) != 1 || len(g.running) != 0 {
			t.Errorf("there are left %d answers and %d calls", len(g.all), len(g.running))
		}
	})
}

// An answer to a volume that is not measured any more is forgotten, and an error takes back what was
// said before.
func TestAnswersThatCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gauges{asked: map[string]int{}, hangs: map[string]chan struct{}{"a": make(chan struct{})}, size: 7}
		g.look(t, "a")
		g.look(t)
		close(g.hangs["a"])
		synctest.Wait()
		if len(g.all) != 0 {
			t.Errorf("kept %v", g.all)
		}
		delete(g.hangs, "a")
		g.look(t, "a")
		g.err = operation.Unanswered{Err: errors.New("away")}
		if g.look(t, "a"); g.says("a") != "7, 0s ago" {
			t.Errorf("without an answer: %s", g.says("a"))
		}
		g.err = errors.New("stale")
		if g.look(t, "a"); g.says("a") != "nothing" {
			t.Errorf("after an error: %s", g.says("a"))
		}
	})
}
