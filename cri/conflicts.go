package cri

import (
	"iter"
	"maps"
	"slices"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Conflict is something of a container that two answers of device plugins set differently. What the
// first one says is what the container gets.
type Conflict struct {
	// Message says what it is, in the kubelet's words.
	Message string
	// Name is that of the variable or the annotation, or the path in the container.
	Name string
	// Kept is what the answer First says, Dropped what the answer Other says.
	Kept, Dropped string
	First, Other  int
}

// setting is one thing that an answer asks for.
type setting struct{ message, name string }

// Conflicts lists what answers say against one before them, by answer and name.
func Conflicts(answers []*v1beta1.ContainerAllocateResponse) (out []Conflict) {
	type said struct {
		value  string
		answer int
	}
	first := map[setting]said{}
	for i, answer := range answers {
		for s, value := range settingsOf(answer) {
			before, again := first[s]
			switch {
			case !again:
				first[s] = said{value, i}
			case before.value != value:
				out = append(out, Conflict{
					Message: s.message, Name: s.name,
					Kept: before.value, Dropped: value, First: before.answer, Other: i,
				})
			}
		}
	}
	return out
}

// settingsOf is what one answer asks for, in the same order each time.
func settingsOf(a *v1beta1.ContainerAllocateResponse) iter.Seq2[setting, string] {
	return func(yield func(setting, string) bool) {
		for _, name := range slices.Sorted(maps.Keys(a.GetEnvs())) {
			if !yield(setting{"Environment variable has conflicting setting", name}, a.Envs[name]) {
				return
			}
		}
		for _, d := range a.GetDevices() {
			const message = "Container device has conflicting mapping host devices"
			if !yield(setting{message, d.GetContainerPath()}, d.GetHostPath()) {
				return
			}
		}
		for _, m := range a.GetMounts() {
			const message = "Container mount has conflicting mapping host mounts"
			if !yield(setting{message, m.GetContainerPath()}, m.GetHostPath()) {
				return
			}
		}
		for _, name := range slices.Sorted(maps.Keys(a.GetAnnotations())) {
			if !yield(setting{"Annotation has conflicting setting", name}, a.Annotations[name]) {
				return
			}
		}
	}
}
