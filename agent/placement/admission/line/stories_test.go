package line

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/internal/goldentest"
	"github.com/numalet/numalet/topology"
)

// TestStories plays what is in testdata: of each story the lines that begin with "> " are what happens, and the
// others what is done then and how the pods stand. go test -rewrite writes these anew.
func TestStories(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			goldentest.Compare(t, path, played(t, string(text)))
		})
	}
}

// played returns the stories with what is done anew.
func played(t *testing.T, text string) string {
	var out strings.Builder
	var w *world
	before := ""
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "# ") && !strings.HasPrefix(before, "# "):
			w = newWorld(t, 2*time.Minute)
			out.WriteString(line)
		case strings.HasPrefix(line, "> "):
			out.WriteString(line)
			w.play(strings.TrimSpace(line[2:]))
			for _, said := range w.said {
				out.WriteString("    " + said + "\n")
			}
			for _, pod := range w.shown() {
				out.WriteString("  | " + pod + "\n")
			}
			w.said = nil
		case !strings.HasPrefix(line, "  "):
			out.WriteString(line)
		}
		before = line
	}
	return out.String()
}

// play has happen what a line of a story says. Then the line looks at what changed.
func (w *world) play(line string) {
	words := strings.Fields(line)
	happen, known := verbs[words[0]]
	if !known {
		w.t.Fatalf("a story says %q", line)
	}
	happen(w, append(words[1:], "", "")) // without what is left out
	w.step(Tick{})
	for _, e := range w.Order {
		if uid := e.Pod.UID; w.follows.Has(uid) != e.Inquiry.Begun {
			w.t.Errorf("what %s needs is followed: %v", uid, w.follows.Has(uid))
		}
	}
}

// verbs has the first words of lines, and what each has happen; it gets the words that follow.
var verbs = map[string]func(w *world, words []string){
	"show":      func(w *world, a []string) { w.words, w.decisions = a[0] == "words", a[0] == "decisions" },
	"impatient": func(w *world, _ []string) { w.Wait = 0 },
	"unaligned": func(w *world, _ []string) { w.Rules.Policy = topology.None },
	"without": func(w *world, a []string) { // GATE
		w.off.Insert(a[0])
		w.ResizePreempts = w.off.Has(schedulerPreempts)
	},
	"rereads": func(w *world, _ []string) { w.Rereads = true },
	"stop":    func(w *world, _ []string) { w.stops = true },
	"restart": func(w *world, a []string) { // "rebooted", or with the record "lost"
		w.stops = false
		switch a[0] {
		case "rebooted":
			w.boot++
		case "lost":
			w.state = allocation.State{}
		}
		w.starts(w.Wait, w.View)
	},

	"machine":  func(w *world, a []string) { w.machine(given(a)) },
	"node":     func(w *world, a []string) { w.has("example.com/"+a[0], a[1], given(a[2:])) }, // RESOURCE COUNT ...
	"status":   func(w *world, a []string) { w.status(strings.Join(given(a), " ")) },
	"heard":    func(w *world, _ []string) { w.heard() },
	"pressure": func(w *world, a []string) { w.pressure = a[0] != "over"; w.step(Poked{}) },

	"submit":   func(w *world, a []string) { w.submit(a[0], strings.Join(a[1:], " ")) }, // POD AMOUNTS
	"together": func(w *world, a []string) { w.each(a, w.submit) },                      // POD AMOUNTS; POD AMOUNTS ...
	"admitted": func(w *world, a []string) { w.each(a, w.admitted) },
	"terminating": func(w *world, a []string) {
		w.each(a, func(name, amounts string) {
			w.admitted(name, amounts)
			w.step(Left{UID: types.UID(name)})
		})
	},
	"resize": func(w *world, a []string) { w.resize(a[0], strings.Join(a[1:], " ")) }, // POD AMOUNTS
	"leaves": func(w *world, a []string) { w.step(Left{UID: types.UID(a[0]), Ended: a[1] == "ended"}) },
	"gone":   func(w *world, a []string) { w.step(Gone{UID: types.UID(a[0])}) },
	"back":   func(w *world, a []string) { w.back(types.UID(a[0]), given(a[1:]), nil) }, // POD [IDS]
	"fails":  func(w *world, a []string) { w.back(types.UID(a[0]), nil, failures[a[1]]) },

	"lacks": func(w *world, a []string) { // POD WHY; "?": it is not known; "slot": of an attached volume
		l := decide.Lack{Why: strings.Join(given(a[1:]), " "), Unknown: a[1] == "?"}
		if l.Why == "slot" {
			l.Limit = "the node is full"
		}
		w.lacks[types.UID(a[0])] = l
		w.step(Poked{})
	},
	"poke":  func(w *world, _ []string) { w.step(Poked{}) },
	"finds": func(w *world, a []string) { delete(w.lacks, types.UID(a[0])); w.step(Poked{}) },
	"claim": func(w *world, a []string) { w.claim(types.UID(a[0]), a[1], a[2]) },
	"after": func(w *world, a []string) {
		d, err := time.ParseDuration(a[0])
		if err != nil {
			w.t.Fatal(err)
		}
		w.now = w.now.Add(d)
	},
}

// each calls f for each pod, which semicolons separate, with its name and the rest.
func (w *world) each(words []string, f func(name, amounts string)) {
	for pod := range strings.SplitSeq(strings.Join(given(words), " "), "; ") {
		name, amounts, _ := strings.Cut(pod, " ")
		f(name, amounts)
	}
}

// admitted has a pod come and be assigned what it asks for. What is done for that is not told.
func (w *world) admitted(name, amounts string) {
	w.submit(name, amounts)
	w.step(Tick{})
	for uid := types.UID(name); w.Find(uid).State.UnderWay(); w.step(Tick{}) {
		w.back(uid, nil, nil)
	}
	if state := w.Find(types.UID(name)).State; state != record.Admitted {
		w.t.Fatalf("%s is %s, want it to be admitted", name, state)
	}
	w.said = nil
}

// given leaves out the words that are not there.
func given(words []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(word string) bool { return word == "" })
}
