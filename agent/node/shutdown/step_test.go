package shutdown

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

var names = [...]string{"take", "begin", "cancel", "end", "release"}

func (e effect) String() string {
	if e.action == end {
		return fmt.Sprintf("end %s in %v", e.pod, e.grace)
	}
	return names[e.action]
}

func texts(all []effect) string {
	var out []string
	for _, e := range all {
		out = append(out, e.String())
	}
	return strings.Join(out, ", ")
}

// A pod of each wave, told what is left of those told to end, as time passes.
func TestShutdownInTurn(t *testing.T) {
	const sec = time.Second
	waves := []Wave{{0, 20 * sec}, {100, 0}, {1000, 10 * sec}, {2000, 5 * sec}}
	web, batch := candidate{"web", 0, 30 * sec}, candidate{"batch", 0, 3 * sec}
	soon := candidate{"soon", 1, 9 * sec}
	agent, zero := candidate{"agent", 2, 60 * sec}, candidate{"zero", 2, 0}
	start := time.Unix(1000, 0)
	type stage struct {
		at   int // seconds
		h    heard
		pods []candidate
		left string
		want string
	}
	calm := heard{kind: found, delay: 35 * sec}
	again := heard{kind: found, delay: 35 * sec, preparing: true}
	down, off := heard{kind: signaled, preparing: true}, heard{kind: signaled}
	all := []candidate{web, batch, soon, agent, zero}
	for name, stages := range map[string][]stage{
		"in order": {
			{0, calm, all, "", "take"}, {0, heard{kind: taken}, all, "", ""},
			{1, down, all, "", "begin, end web in 20s, end batch in 3s"},
			{2, heard{}, all, "web batch", ""}, {3, down, all, "web", ""},
			{9, heard{}, all[2:], "", "end soon in 1s, end agent in 10s, end zero in 1s"},
			{10, heard{}, all[2:], "soon agent", ""}, // nobody waits for a wave without time
			{11, heard{}, nil, "soon", "release"},
			{12, heard{}, all, "", ""}, {13, off, all, "", "cancel, take"},
		},
		"the time is up": {
			{0, down, all[:1], "", "begin, end web in 20s"},
			{19, heard{}, all, "web", "end batch in 1s"},
			{20, heard{}, all, "web batch", "end soon in 1s, end agent in 10s, end zero in 1s"},
			{30, heard{}, all, "web agent", "release"},
		},
		"cancelled": {
			{0, down, all, "", "begin, end web in 20s, end batch in 3s"},
			{1, off, all, "web", "cancel, take"}, {2, heard{}, all, "", ""}, {2, off, all, "", ""},
			{9, down, all, "", "begin, end web in 20s, end batch in 3s"},
		},
		"nobody runs": {{0, down, nil, "", "begin, release"}},
		"late": {
			{0, down, nil, "", "begin, release"}, {1, heard{}, all[:1], "", "end web in 4s"},
		},
		"announced while the bus was away": {
			{0, again, all[3:4], "", "begin, end agent in 10s"}, {1, again, nil, "agent", ""},
			{2, calm, nil, "", "cancel, take"},
		},
		"logind waits less": {
			{0, heard{kind: found, delay: 7 * sec}, nil, "", "take"},
			{0, down, all, "", "begin, end web in 4s, end batch in 3s"},
			{4, heard{}, all, "", "end soon in 1s, end agent in 2s, end zero in 1s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s state
			for _, one := range stages {
				in := input{one.h, start.Add(time.Duration(one.at) * sec), one.pods,
					sets.New[types.UID]()}
				for _, uid := range strings.Fields(one.left) {
					in.left.Insert(types.UID(uid))
				}
				var did []effect
				if s, did = s.step(in, waves); texts(did) != one.want {
					t.Errorf("at %d: got  %s\nwant %s", one.at, texts(did), one.want)
				}
			}
		})
	}
}

// world is a node in a walk: its pods, and what the machine does.
type world struct {
	waves []Wave
	now   time.Time
	pods  map[types.UID]*life
	next  int
	down  bool // as logind has it
	since time.Time
	ended []int // waves of the pods that were ended in this shutdown, in order
}

// life is a pod's.
type life struct {
	candidate
	reported bool // in this shutdown
	runs     bool
	left     bool // something of it
}

// TestWalk holds what is done against what happened, over random shutdowns:
//   - nobody ends but in a shutdown, nobody twice, and nobody with more than is left of the wave;
//   - no pod ends before the pods of lower waves have ended, or had their time;
//   - the inhibitor is released once, when every pod was told and every wave is over, and never later
//     than all waves take;
//   - it is asked for when logind was found and when a shutdown is cancelled.
//
// NUMALET_STEPS says how many steps.
func TestWalk(t *testing.T) {
	steps := 50_000
	if text := os.Getenv("NUMALET_STEPS"); text != "" {
		var err error
		if steps, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	for done := 0; done < steps; {
		w := world{now: time.Unix(1000, 0), pods: map[types.UID]*life{}}
		for i := range 1 + random.IntN(4) {
			w.waves = append(w.waves, Wave{int32(i * 10), time.Duration(random.IntN(6)) * time.Second})
		}
		var s state
		for range 80 {
			h := w.happens(random)
			in := input{heard: h, now: w.now, left: sets.New[types.UID]()}
			for uid, p := range w.pods {
				if p.runs {
					in.pods = append(in.pods, p.candidate)
				}
				if p.reported && p.left {
					in.left.Insert(uid)
				}
			}
			var did []effect
			before := s
			s, did = s.step(in, w.waves)
			w.check(t, before, s, h, did)
			if t.Failed() {
				return
			}
			done++
		}
	}
}

// happens lets time pass, pods come and end, and logind say something.
func (w *world) happens(random *rand.Rand) (h heard) {
	w.now = w.now.Add(time.Duration(random.IntN(1500)) * time.Millisecond)
	if random.IntN(3) == 0 { // also late: it was being admitted
		w.next++
		uid := types.UID(strconv.Itoa(w.next))
		w.pods[uid] = &life{candidate: candidate{uid, waveOf(w.waves, int32(random.IntN(50)-5)),
			time.Duration(random.IntN(9)) * time.Second}, runs: true, left: true}
	}
	for uid, p := range w.pods {
		switch {
		case !p.left:
			delete(w.pods, uid)
		case !p.runs && random.IntN(3) == 0:
			p.left = false
		case p.reported && random.IntN(4) == 0, random.IntN(30) == 0:
			p.runs = false
		}
	}
	switch random.IntN(12) {
	case 0:
		w.down = !w.down
		return heard{kind: signaled, preparing: w.down}
	case 1:
		if random.IntN(4) == 0 {
			w.down = !w.down // unheard
		}
		return heard{kind: found, preparing: w.down, delay: time.Minute}
	case 2:
		return heard{kind: taken}
	}
	return heard{}
}

func (w *world) check(t *testing.T, before, after state, h heard, did []effect) {
	t.Helper()
	begins := h.preparing && before.down == nil
	if begins {
		w.since, w.ended = w.now, nil
		for _, p := range w.pods {
			p.reported = false
		}
	}
	asks := h.kind == found && !h.preparing || h.kind == signaled && !h.preparing && before.down != nil
	over := before.down != nil && before.down.at == len(w.waves)
	var taken, released int
	for _, e := range did {
		switch e.action {
		case take:
			taken++
		case begin:
			if !begins {
				t.Errorf("begins after %+v", h)
			}
		case cancel:
			if before.down == nil || after.down != nil {
				t.Errorf("cancels what is not under way")
			}
		case end:
			w.checkEnd(t, before, after, e)
		case release:
			released++
			w.checkRelease(t, over)
		}
	}
	if (taken > 0) != asks || taken > 1 || released > 1 {
		t.Errorf("asks %d times, released %d times, after %+v", taken, released, h)
	}
	if d := after.down; d != nil && d.at < len(w.waves) {
		if !w.now.Before(d.until) || after.due(w.waves) != d.until {
			t.Errorf("wave %d is to be over since %v", d.at, w.now.Sub(d.until))
		}
	}
}

func (w *world) checkEnd(t *testing.T, before, after state, e effect) {
	t.Helper()
	p := w.pods[e.pod]
	if after.down == nil || p.reported {
		t.Errorf("pod %s ends twice or without a shutdown", e.pod)
	}
	p.reported = true
	wave := after.down.waves[e.pod]
	if wave < p.wave || e.grace > max(leastGrace, min(p.own, w.waves[min(wave, len(w.waves)-1)].Grace)) ||
		e.grace < leastGrace {
		t.Errorf("pod %s of wave %d ends in wave %d within %v", e.pod, p.wave, wave, e.grace)
	}
	for _, other := range w.pods {
		if o, reported := after.down.waves[other.uid]; other.left && reported && o < wave &&
			before.down != nil && before.down.at == o && w.now.Before(before.down.until) {
			t.Errorf("pod %s of wave %d ends while pod %s of wave %d has time", e.pod, wave, other.uid, o)
		}
	}
	if n := len(w.ended); n > 0 && w.ended[n-1] > wave {
		t.Errorf("pod %s of wave %d ends after one of wave %d", e.pod, wave, w.ended[n-1])
	}
	w.ended = append(w.ended, wave)
}

func (w *world) checkRelease(t *testing.T, over bool) {
	t.Helper()
	if over {
		t.Error("released again")
	}
	for _, p := range w.pods {
		if p.runs && !p.reported {
			t.Errorf("released before pod %s was told to end", p.uid)
		}
	}
	// A step comes at most 1.5 s after a wave's time is up.
	slack, took := time.Duration(len(w.waves))*1500*time.Millisecond, w.now.Sub(w.since)
	if took > total(w.waves)+slack {
		t.Errorf("released after %v, and the waves take %v", took, total(w.waves))
	}
}
