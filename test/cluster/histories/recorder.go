package histories

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
)

// Value is one of a field's values.
type Value struct {
	Is string
	// Lasted is how long it was seen; Always if that does not matter.
	Lasted time.Duration
}

// Always is the duration of single events: they cannot be coalesced.
const Always = time.Duration(math.MaxInt64)

// History has a pod's values of each field in order, no two equal ones in a row.
type History map[string][]Value

// Recorder records the pods of one node by name. It is safe for concurrent use.
type Recorder struct {
	// plain removes from a text what differs between nodes or runs.
	plain func(string) string

	mu   sync.Mutex
	pods map[string]*track
}

// track is the record of a pod.
type track struct {
	fields map[string][]seen
	// distinct has values of which only equality matters.
	distinct map[string][]string
	recorded map[string]bool // events
	gone     time.Time       // zero: it exists
}

// seen is a value with the time since when it held; zero: it happened once.
type seen struct {
	is string
	at time.Time
}

// New returns a recorder; plain removes from texts what differs between nodes or runs.
func New(plain func(string) string) *Recorder {
	return &Recorder{plain: plain, pods: map[string]*track{}}
}

func (r *Recorder) trackLocked(pod string) *track {
	is := r.pods[pod]
	if is == nil {
		is = &track{map[string][]seen{}, map[string][]string{}, map[string]bool{}, time.Time{}}
		r.pods[pod] = is
	}
	return is
}

// Pod records a pod as a watcher sees it now, or its end.
func (r *Recorder) Pod(pod *v1.Pod, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, of := time.Now(), r.trackLocked(pod.Name)
	of.gone = time.Time{}
	prefix := ""
	if object := of.number("object", string(pod.UID)); object != "1" {
		prefix = fmt.Sprintf("object %s: ", object)
	}
	fields := of.fieldsOf(pod)
	for field, is := range fields {
		of.set(prefix+field, r.plain(is), now)
	}
	for field := range of.fields {
		name, ofThis := strings.CutPrefix(field, prefix)
		if _, is := fields[name]; !is && ofThis && comesAndGoes(name) {
			of.set(field, absent, now)
		}
	}
	if gone {
		of.gone = now
	}
}

// Event records an event about a pod, at its first occurrence.
func (r *Recorder) Event(event *v1.Event) {
	about := event.InvolvedObject
	if about.Kind != "Pod" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.trackLocked(about.Name)
	is := r.plain(strings.TrimSpace(fmt.Sprintf("%s %s: %s", event.Type, event.Reason, event.Message)))
	field := strings.TrimSpace("events " + about.FieldPath)
	if !of.recorded[field+is] {
		of.recorded[field+is] = true
		of.set(field, is, time.Time{})
	}
}

// Called records a call about a pod.
func (r *Recorder) Called(pod, what, call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, field := r.trackLocked(pod), "calls "+what
	of.fields[field] = append(of.fields[field], seen{is: r.plain(call)})
}

// Histories returns the histories of all pods, with the calls of the runtime's journal.
func (r *Recorder) Histories(journal []crisim.Call) map[string]History {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]History{}
	for name, of := range r.pods {
		history := History{}
		for field, values := range of.fields {
			history[field] = of.lasting(values)
		}
		out[name] = history
	}
	for _, call := range journal {
		history := out[call.Subject.Pod]
		if history == nil || isCleanUp(call.Method) {
			continue
		}
		field := strings.TrimSpace("calls " + call.Subject.Container)
		history.add(field, r.plain(words(call)))
		if call.Method == "StartContainer" || call.Method == "RunPodSandbox" {
			history.add("starts", strings.TrimSpace(words(call)+" "+call.Subject.Container))
		}
	}
	return out
}

// Late returns how long it took until most of such pods with a sandbox were seen to have one: how
// busy the machine is.
func (r *Recorder) Late(journal []crisim.Call, such func(pod string) bool) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []time.Duration
	first := map[string]bool{}
	for _, call := range journal {
		name, of := call.Subject.Pod, r.pods[call.Subject.Pod]
		if call.Method != "RunPodSandbox" || call.Error != "" || of == nil || first[name] ||
			!such(name) {
			continue
		}
		first[name] = true
		for _, v := range of.fields["condition "+string(v1.PodReadyToStartContainers)] {
			if strings.Contains(v.is, " True") {
				all = append(all, v.at.Sub(call.Done))
				break
			}
		}
	}
	slices.Sort(all)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)*4/5]
}

func (h History) add(field, is string) {
	if values := h[field]; len(values) == 0 || values[len(values)-1].Is != is {
		h[field] = append(values, Value{is, Always})
	}
}

// isCleanUp reports whether a call removes something that has ended, which each agent does at
// leisure.
func isCleanUp(method string) bool {
	return method == "RemoveContainer" || method == "RemovePodSandbox"
}

func words(call crisim.Call) string {
	out := call.Method
	if call.Subject.Image != "" {
		out += " " + call.Subject.Image
	} else if call.Method != "ExecSync" && call.Method != "StopPodSandbox" {
		out += fmt.Sprintf(" #%d", call.Subject.Attempt)
	}
	if call.Error != "" {
		out += ": " + call.Error
	}
	return out
}

func (t *track) set(field, is string, at time.Time) {
	values := t.fields[field]
	if len(values) == 0 || values[len(values)-1].is != is {
		t.fields[field] = append(values, seen{is, at})
	}
}

// lasting returns the values with their durations.
func (t *track) lasting(values []seen) (out []Value) {
	for i, v := range values {
		end := t.gone
		switch {
		case i+1 < len(values):
			end = values[i+1].at
		case end.IsZero():
			end = time.Now()
		}
		lasted := Always
		if !v.at.IsZero() {
			lasted = end.Sub(v.at)
		}
		out = append(out, Value{v.is, lasted})
	}
	return out
}

// number returns the index of the value among the field's distinct values, from 1.
func (t *track) number(field, is string) string {
	if is == "" {
		return "none"
	}
	if !slices.Contains(t.distinct[field], is) {
		t.distinct[field] = append(t.distinct[field], is)
	}
	return fmt.Sprint(1 + slices.Index(t.distinct[field], is))
}
