package playground

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/internal/oneline"
)

// tell returns the text of a pane.
func (v viewer) tell(k kind, of assigned.Key) []string {
	switch k {
	case explainPane:
		return v.explain(of)
	case eventsPane:
		return orNothing(happened(slices.DeleteFunc(telling(v.agent.Events()), func(e v1.Event) bool {
			return e.InvolvedObject.Name != of.Pod || e.InvolvedObject.Namespace != of.Namespace
		})), "nothing has happened to it yet")
	case logPane:
		return orNothing(logLines(v.logs, of), "it has written nothing")
	case nodePane:
		now := v.look()
		return slices.Concat(orNothing(slices.Concat(now.short, now.wrong), "the node is short of nothing, and "+
			"nothing is wrong with manifests and plugins"), []string{""}, now.free, []string{""},
			happened(now.happens))
	case callsPane:
		return orNothing(v.calls.lines(), "there is no plugin or driver of yours: start the playground with "+
			"--plugin CMD or --driver CMD")
	}
	return nil
}

func orNothing(lines []string, text string) []string {
	if len(lines) == 0 {
		return []string{text}
	}
	return lines
}

// explain asks the agent as "numalet explain" does.
func (v viewer) explain(of assigned.Key) []string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("%s/debug/admission/%s/%s", v.server, of.Namespace, of.Pod), nil)
	if err != nil {
		return []string{err.Error()}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return []string{err.Error()}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return strings.Split(strings.TrimSpace(string(raw)), "\n")
	}
	var record explain.Record
	if err := json.Unmarshal(raw, &record); err != nil {
		return []string{err.Error()}
	}
	return strings.Split(strings.TrimRight(record.Text(), "\n"), "\n")
}

// mostOfLog is how many bytes of the end of a log are read.
const mostOfLog = 64 << 10

// logLines returns the last lines that the container wrote, without time, stream and tag.
func logLines(dir string, of assigned.Key) (out []string) {
	files, err := filepath.Glob(filepath.Join(dir, of.Namespace+"_"+of.Pod+"_*", of.Container, "*.log"))
	if err != nil || len(files) == 0 {
		return nil
	}
	newest := slices.MaxFunc(files, func(a, b string) int { return changed(a).Compare(changed(b)) })
	f, err := os.Open(newest)
	if err != nil {
		return []string{err.Error()}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return []string{err.Error()}
	}
	begin := max(0, info.Size()-mostOfLog)
	raw, err := io.ReadAll(io.NewSectionReader(f, begin, mostOfLog))
	if err != nil {
		return []string{err.Error()}
	}
	for line := range strings.Lines(string(raw)) {
		if parts := strings.SplitN(line, " ", 4); len(parts) == 4 {
			out = append(out, oneline.Of(strings.TrimRight(parts[3], "\r\n")))
		}
	}
	return out
}
