package rig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/strictyaml"
	"github.com/numalet/numalet/topology/podspec"
)

// A trace consists of lines of JSON, ordered by time, in seconds since the start:
//
//	{"template": "trainer", "containers": [{"limits": {"cpu": 8, "memory": "32Gi", "gpu": 2}}]}
//	{"at": 0.5, "arrive": "job-1", "template": "trainer", "lifetime": 3600}
//	{"at": 2, "arrive": "job-2", "containers": [{"limits": {"cpu": 2, "memory": "1Gi"}}]}
//	{"at": 3, "arrive": "job-3", "manifest": {"spec": {"containers": [...]}}}
//	{"at": 70, "depart": "job-2"}
//	{"size": "big", "template": "trainer", "containers": [{"limits": {"cpu": 16, "memory": "64Gi", "gpu": 2}}]}
//	{"at": 80, "arrive": "job-4", "template": "trainer", "resizes": [{"after": 600, "size": "big"}]}
//
// A pod leaves after its lifetime or with its departure; without either it stays. The manifest is a
// pod's; only its resources and restart policies count. A size is what pods of a template ask for after
// a resize, which comes some seconds after the pod was admitted.
type traceLine struct {
	Size     string   `json:"size,omitempty"`
	Template string   `json:"template,omitempty"`
	At       *float64 `json:"at,omitempty"`
	Arrive   string   `json:"arrive,omitempty"`
	Depart   string   `json:"depart,omitempty"`
	// Lifetime is in seconds.
	Lifetime *float64      `json:"lifetime,omitempty"`
	Resizes  []traceResize `json:"resizes,omitempty"`
	PodSpec
	Manifest json.RawMessage `json:"manifest,omitempty"`
}

type traceResize struct {
	After float64 `json:"after"` // in seconds
	Size  string  `json:"size"`
}

// Bounds of a trace: bytes of a line, and different shapes.
const (
	maxLine   = 1 << 20
	maxShapes = 100000
)

// ReadTrace reads a trace: JSON lines, or CSV if the first line is a header of column names. Errors
// name the line.
func (s *Site) ReadTrace(r io.Reader) (Stream, error) {
	t := &traceReader{
		site: s, templates: map[string]int{}, sizes: map[string]int{}, shapes: map[string]int{},
		running: map[string]int{},
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	number := 0
	for lines.Scan() {
		number++
		line := bytes.TrimSpace(lines.Bytes())
		if number == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")) // spreadsheets write a byte order mark
		}
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if err := t.read(line); err != nil {
			return Stream{}, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return Stream{}, fmt.Errorf("line %d: longer than %d bytes", number+1, maxLine)
	} else if err != nil {
		return Stream{}, fmt.Errorf("line %d: %w", number+1, err)
	}
	if len(t.out.Arrivals) == 0 {
		return Stream{}, errors.New("no pod arrives in it; a line looks like " +
			`{"at": 0.5, "arrive": "job-1", ` +
			`"containers": [{"limits": {"cpu": 2, "memory": "1Gi"}}]}`)
	}
	return t.out, t.out.oneOwner()
}

type traceReader struct {
	site *Site
	out  Stream
	// columns holds the columns of a CSV trace; nil: JSON lines.
	columns []string
	last    time.Duration
	// templates is keyed by name, shapes by what the pod asks for; values are indexes in out.Shapes.
	templates, shapes map[string]int
	sizes             map[string]int // indexes in out.Sizes, by name
	// running maps the names of pods that have not departed to their arrivals.
	running map[string]int
}

func (t *traceReader) read(text []byte) error {
	if t.columns != nil || text[0] != '{' {
		if len(t.out.Shapes) > 0 && t.columns == nil {
			return errors.New("not JSON ({...}), as the lines before are")
		}
		line, err := t.csvLine(string(text))
		if err != nil || line == nil {
			return err
		}
		return t.add(*line)
	}
	var line traceLine
	if err := strictyaml.UnmarshalJSON(text, &line); err != nil {
		return fmt.Errorf("%s; it looks like "+
			`{"at": 0.5, "arrive": "job-1", "template": "trainer", "lifetime": 60}`,
			strings.TrimPrefix(err.Error(), "json: "))
	}
	return t.add(line)
}

func (t *traceReader) add(line traceLine) error {
	if line.Size != "" {
		if err := t.size(line); err != nil {
			return fmt.Errorf("size %s: %w", line.Size, err)
		}
		return nil
	}
	if line.Template != "" && line.Arrive == "" && line.Depart == "" && line.At == nil {
		if _, twice := t.templates[line.Template]; twice {
			return fmt.Errorf("template %s is there twice", line.Template)
		}
		shape, err := t.site.shape(line.Template, line.PodSpec)
		if err != nil {
			return fmt.Errorf("template %s: %w", line.Template, err)
		}
		t.templates[line.Template] = len(t.out.Shapes)
		t.out.Shapes = append(t.out.Shapes, shape)
		return nil
	}
	if line.At == nil {
		return errors.New(`"at" is missing: seconds since the start`)
	}
	at, err := seconds("at", *line.At)
	switch {
	case err != nil:
		return err
	case at < t.last:
		return fmt.Errorf("it is at %v and the line before at %v; sort the trace by time",
			at.Seconds(), t.last.Seconds())
	case (line.Arrive == "") == (line.Depart == ""):
		return errors.New(`it needs one of "arrive" and "depart", with the pod's name`)
	}
	t.last = at
	if line.Depart != "" {
		return t.depart(line.Depart, at)
	}
	return t.arrive(line, at)
}

func (t *traceReader) depart(name string, at time.Duration) error {
	i, ok := t.running[name]
	if !ok {
		return fmt.Errorf("%s departs and has not arrived, or has departed or has a lifetime", name)
	}
	delete(t.running, name)
	a := &t.out.Arrivals[i]
	a.Lifetime = max(at-a.At, time.Nanosecond)
	return nil
}

func (t *traceReader) arrive(line traceLine, at time.Duration) error {
	if _, twice := t.running[line.Arrive]; twice {
		return fmt.Errorf("%s arrives again and has not departed", line.Arrive)
	}
	shape, err := t.shapeOf(line)
	if err != nil {
		return fmt.Errorf("%s: %w", line.Arrive, err)
	}
	a := Arrival{At: at, Shape: shape}
	if line.Lifetime == nil {
		t.running[line.Arrive] = len(t.out.Arrivals)
	} else if a.Lifetime, err = seconds("lifetime", *line.Lifetime); err != nil {
		return fmt.Errorf("%s: %w", line.Arrive, err)
	} else {
		a.Lifetime = max(a.Lifetime, time.Nanosecond)
	}
	if a.Resizes, err = t.resizes(line.Resizes, shape); err != nil {
		return fmt.Errorf("%s: %w", line.Arrive, err)
	}
	t.out.Arrivals = append(t.out.Arrivals, a)
	return nil
}

// shapeOf returns the shape that a line names, or the shape of pods that ask for the same.
func (t *traceReader) shapeOf(line traceLine) (int, error) {
	if line.Template != "" {
		i, ok := t.templates[line.Template]
		if !ok {
			return 0, fmt.Errorf("no line before says what template %s is", line.Template)
		}
		return i, nil
	}
	key, err := json.Marshal(line.PodSpec)
	if err != nil {
		return 0, err
	}
	key = append(key, line.Manifest...)
	if i, ok := t.shapes[string(key)]; ok {
		return i, nil
	}
	if len(t.out.Shapes) >= maxShapes {
		return 0, fmt.Errorf("more than %d different kinds of pods", maxShapes)
	}
	shape, err := t.newShape(line)
	if err != nil {
		return 0, err
	}
	t.shapes[string(key)] = len(t.out.Shapes)
	t.out.Shapes = append(t.out.Shapes, shape)
	return len(t.out.Shapes) - 1, nil
}

func (t *traceReader) newShape(line traceLine) (Shape, error) {
	if len(line.Manifest) == 0 {
		shape, err := t.site.shape(line.Arrive, line.PodSpec)
		if err != nil {
			return shape, err
		}
		shape.Name = describe(shape)
		return shape, nil
	}
	if len(line.Containers) > 0 || line.Resources != nil {
		return Shape{}, errors.New("it has both containers or resources and a manifest")
	}
	pod := &v1.Pod{}
	if err := json.Unmarshal(line.Manifest, pod); err != nil {
		return Shape{}, fmt.Errorf("manifest: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if len(pod.Spec.Containers) == 0 {
		return Shape{}, errors.New("the manifest has no spec.containers")
	}
	for c := range podspec.Containers(pod) {
		if err := complete(&c.Resources); err != nil {
			return Shape{}, fmt.Errorf("manifest: container %s: %w", c.Name, err)
		}
	}
	if err := completeWhole(pod); err != nil {
		return Shape{}, fmt.Errorf("manifest: spec.resources: %w", err)
	}
	claims, err := t.site.claims(pod, line.Claims)
	if err != nil {
		return Shape{}, fmt.Errorf("manifest: %w", err)
	}
	pod.UID = "rig"
	shape := Shape{Pod: pod, Claims: claims}
	shape.Name = describe(shape)
	return shape, nil
}

// describe names a shape that has no name: "cpu 4, memory 8Gi, nvidia.com/gpu 2".
func describe(s Shape) string {
	var parts []string
	requests := podspec.Requests(s.Pod)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		if q := requests[name]; name != v1.ResourcePods && !q.IsZero() {
			parts = append(parts, string(name)+" "+q.String())
		}
	}
	for _, c := range s.Claims {
		parts = append(parts, "claim "+c.Name)
	}
	if len(parts) == 0 {
		return "asks for nothing"
	}
	return strings.Join(parts, ", ")
}

// seconds converts a time, rounded to the microsecond.
func seconds(what string, s float64) (time.Duration, error) {
	if math.IsNaN(s) || s < 0 || s > maxTime.Seconds() {
		return 0, fmt.Errorf("%q is %v; it is 0 to %v seconds", what, s, maxTime.Seconds())
	}
	return time.Duration(math.Round(s*1e6)) * time.Microsecond, nil
}
