package rig

import (
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/numalet/numalet/internal/strictyaml"
)

//go:embed mixes/*.yaml
var mixes embed.FS

// Mix is a workload: templates of pods that arrive at random times.
type Mix struct {
	Name string `json:"name"`
	// About describes the mix in one sentence.
	About string `json:"about,omitempty"`
	// Load sets how fast pods arrive: at 0.9 they ask for 90% of the machine's capacity of the
	// resource that the mix needs most of. Interval sets the mean time between arrivals instead.
	Load      float64    `json:"load,omitempty"`
	Interval  Duration   `json:"interval,omitempty"`
	Templates []Template `json:"templates"`
}

// Template is one kind of pod.
type Template struct {
	Name string `json:"name"`
	// Weight is how often its pods arrive, relative to the other templates; 1 if not given.
	Weight   *float64 `json:"weight,omitempty"`
	Lifetime Lifetime `json:"lifetime"`
	// Resizes say how its pods grow and shrink; nil: they do not.
	Resizes *ResizeSpec `json:"resizes,omitempty"`
	PodSpec `json:",inline"`
}

// Lifetime says how long pods run: in YAML "2h", or {mean: 2h, distribution: uniform}.
type Lifetime struct {
	Mean Duration `json:"mean"`
	// Distribution is exponential (the default), fixed, uniform (up to twice the mean) or lognormal
	// (most are short, some very long).
	Distribution string `json:"distribution,omitempty"`
}

// UnmarshalJSON reads both forms.
func (l *Lifetime) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] != '{' {
		return l.Mean.UnmarshalJSON(data)
	}
	type plain Lifetime
	return strictyaml.UnmarshalJSON(data, (*plain)(l))
}

// Duration is a time.Duration in the form "1h30m".
type Duration time.Duration

// UnmarshalJSON reads the text.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("%s is no duration; write it like 90s, 15m or 2h", data)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is no duration; write it like 90s, 15m or 2h", text)
	}
	*d = Duration(parsed)
	return nil
}

// MixNames returns the names of the built-in mixes.
func MixNames() []string {
	entries, err := mixes.ReadDir("mixes")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// MixText returns the text of a built-in mix.
func MixText(name string) ([]byte, error) {
	raw, err := mixes.ReadFile("mixes/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("no built-in mix %q; there are: %s",
			name, strings.Join(MixNames(), ", "))
	}
	return raw, nil
}

// OpenMix reads a built-in mix, or one from a file.
func OpenMix(nameOrFile string) (Mix, error) {
	raw, err := MixText(nameOrFile)
	if err != nil {
		if raw, err = os.ReadFile(nameOrFile); err != nil {
			return Mix{}, fmt.Errorf("open mix: %w; give a file, or one that is built in: %s",
				err, strings.Join(MixNames(), ", "))
		}
	}
	mix, err := ParseMix(raw)
	if err != nil {
		return mix, fmt.Errorf("mix %s: %w", nameOrFile, err)
	}
	return mix, nil
}

// ParseMix reads a mix in YAML.
func ParseMix(raw []byte) (Mix, error) {
	var m Mix
	if err := strictyaml.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("%s; \"numalet rig mixes NAME\" prints one that is right",
			strings.TrimPrefix(err.Error(), "json: "))
	}
	return m, m.check()
}

func (m *Mix) check() error {
	if m.Load < 0 || m.Load > 100 || m.Interval < 0 {
		return fmt.Errorf("load is 0 to 100 and interval not negative")
	}
	if len(m.Templates) == 0 {
		return fmt.Errorf("it has no templates; \"numalet rig mixes NAME\" prints one that is " +
			"right")
	}
	names, total := map[string]bool{}, 0.0
	for i, t := range m.Templates {
		if t.Name == "" || names[t.Name] {
			return fmt.Errorf("templates[%d]: name %q is empty or there twice", i, t.Name)
		}
		names[t.Name] = true
		if err := t.check(); err != nil {
			return fmt.Errorf("template %s: %w", t.Name, err)
		}
		total += t.weight()
	}
	if total == 0 {
		return fmt.Errorf("all weights are 0")
	}
	return nil
}

func (t Template) check() error {
	if t.weight() < 0 || t.weight() > 1e6 {
		return fmt.Errorf("weight is 0 to 1000000")
	}
	if err := t.Lifetime.check("lifetime"); err != nil {
		return err
	}
	if err := t.Resizes.check(); err != nil {
		return fmt.Errorf("resizes: %w", err)
	}
	return nil
}

func (t Template) weight() float64 {
	if t.Weight == nil {
		return 1
	}
	return *t.Weight
}
