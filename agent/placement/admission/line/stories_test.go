package line

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/internal/goldentest"
)

// TestStories plays what is in testdata/stories.txt: of each story the lines that begin with "> " are what
// happens, and the others what is done then and how the pods stand. go test -rewrite writes these anew.
func TestStories(t *testing.T) {
	path := filepath.Join("testdata", "stories.txt")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var w *world
	before := ""
	for line := range strings.Lines(string(text)) {
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
	goldentest.Compare(t, path, out.String())
}

// play has happen what a line of a story says. Then the line looks at what changed.
func (w *world) play(line string) {
	verb, rest, _ := strings.Cut(line, " ")
	name, args, _ := strings.Cut(rest, " ")
	uid := types.UID(name)
	switch verb {
	case "node": // RESOURCE COUNT [prefers]
		number, how, _ := strings.Cut(args, " ")
		count, err := strconv.Atoi(number)
		if err != nil {
			w.t.Fatal(err)
		}
		w.has("example.com/"+name, count, how == "prefers")
	case "impatient":
		w.Wait = 0
	case "poke":
		w.step(Poked{})
	case "stop":
		w.stops = true
	case "restart":
		w.stops = false
		w.starts(w.Wait, w.View)
	case "submit": // POD AMOUNTS
		w.submit(name, args)
	case "together": // POD; POD ...
		for pod := range strings.SplitSeq(rest, "; ") {
			name, amounts, _ := strings.Cut(pod, " ")
			w.submit(name, amounts)
		}
	case "back": // POD [IDS]
		w.back(uid, strings.Fields(args), nil)
	case "fails": // POD HOW
		w.back(uid, nil, failures[args])
	case "leaves":
		w.step(Left{UID: uid, Ended: args == "ended"})
	case "gone":
		w.step(Gone{UID: uid})
	case "lacks": // POD WHY; "?": it is not known
		w.lacks[uid] = decide.Lack{Why: args, Unknown: args == "?"}
		w.step(Poked{})
	case "finds":
		delete(w.lacks, uid)
		w.step(Poked{})
	case "after": // DURATION
		d, err := time.ParseDuration(name)
		if err != nil {
			w.t.Fatal(err)
		}
		w.now = w.now.Add(d)
	default:
		w.t.Fatalf("a story says %q", line)
	}
	w.step(Tick{})
}
