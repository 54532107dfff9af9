package eviction

import (
	"cmp"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/node/config"
)

// look is what one step of the walk read and what followed.
type lookBack struct {
	at time.Time
	r  Readings
	v  verdict
}

// TestWalk takes random amounts through random settings and holds each verdict against the history:
// a threshold that is relieved was met at each look of its grace and comes first of those that were; a
// condition holds if and only if a threshold of it was met within the transition. Looks are seconds apart,
// or come when the kernel wakes somebody: milliseconds after the last, or at the same time. NUMALET_STEPS
// says how many steps.
func TestWalk(t *testing.T) {
	steps := walkSteps(t)
	random := rand.New(rand.NewPCG(1, 2))
	for done := 0; done < steps; {
		set := randomRules(random)
		var s state
		var past []lookBack
		now := time.Unix(0, 0)
		amounts := map[Signal]int64{}
		for range 60 {
			r := Readings{}
			for signal := range kinds {
				amounts[signal] = min(max(amounts[signal]+random.Int64N(21)-10, 0), 100)
				if random.IntN(10) > 0 {
					r[signal] = Reading{amounts[signal], 100}
				}
			}
			var v verdict
			s, v = s.step(r, set, now)
			past = append(past, lookBack{now, r, v})
			checkVerdict(t, set, past)
			if t.Failed() {
				return
			}
			now = now.Add(between(random))
			done++
		}
	}
}

func walkSteps(t *testing.T) int {
	t.Helper()
	steps, err := strconv.Atoi(cmp.Or(os.Getenv("NUMALET_STEPS"), "20000"))
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// between is the time from one look to the next.
func between(random *rand.Rand) time.Duration {
	switch random.IntN(4) {
	case 0:
		return time.Duration(random.IntN(200)) * time.Millisecond // somebody was woken
	case 1:
		return 0 // a glance, and then a look at pods too
	default:
		return time.Duration(1+random.IntN(10)) * time.Second
	}
}

func randomRules(random *rand.Rand) rules {
	set := rules{transition: time.Duration(random.IntN(4)) * 10 * time.Second}
	for i := range 5 {
		all := []Signal{MemoryAvailable, MemoryAvailable, NodeFSAvailable, ImageFSInodesFree, PIDAvailable}
		one := Threshold{Signal: all[i], Soft: random.IntN(2) == 0,
			Value:   config.Threshold{Part: float64(1+random.IntN(8)) / 10},
			Reclaim: config.Threshold{Part: float64(random.IntN(3)) / 10}}
		if one.Soft {
			one.Grace = time.Duration(random.IntN(30)) * time.Second
		}
		set.thresholds = append(set.thresholds, one)
	}
	return set
}

// metAt says at which looks the threshold was met, from the readings alone; unread looks keep what was.
func metAt(t Threshold, past []lookBack) []bool {
	out := make([]bool, len(past))
	was := false
	for i, p := range past {
		if reading, known := p.r[t.Signal]; known {
			least := int64(t.Value.Part * 100)
			if was {
				least += int64(t.Reclaim.Part * 100)
			}
			was = reading.Available < least
		}
		out[i] = was
	}
	return out
}

func checkVerdict(t *testing.T, set rules, past []lookBack) {
	t.Helper()
	last := past[len(past)-1]
	var first *Threshold
	pressed := map[v1.NodeConditionType]bool{}
	for i, th := range set.thresholds {
		met := metAt(th, past)
		since := last.at
		for at := len(past) - 1; at >= 0 && met[at]; at-- {
			since = past[at].at
		}
		_, read := last.r[th.Signal]
		if first == nil && read && met[len(past)-1] && last.at.Sub(since) >= th.Grace {
			first = &set.thresholds[i]
		}
		for at, p := range past {
			_, read := p.r[th.Signal]
			if met[at] && read && (at == len(past)-1 || last.at.Sub(p.at) < set.transition) {
				pressed[kinds[th.Signal].condition] = true
			}
		}
	}
	if first != last.v.relieve {
		t.Errorf("look %d relieves %+v; want %+v", len(past), last.v.relieve, first)
	}
	for _, kind := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure,
		v1.NodePIDPressure} {
		if slices.Contains(last.v.pressure, kind) != pressed[kind] {
			t.Errorf("look %d: %s is %v; want %v", len(past), kind, !pressed[kind], pressed[kind])
		}
	}
}
