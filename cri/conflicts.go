package cri

import (
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

// setting is one thing that an answer asks for. The message is what a conflict about it is called.
type setting struct{ message, name, value string }

// Conflicts lists what answers say against one before them, by answer and name.
func Conflicts(answers []*v1beta1.ContainerAllocateResponse) (out []Conflict) {
	type key struct{ message, name string }
	type said struct {
		value  string
		answer int
	}
	first := map[key]said{}
	for i, answer := range answers {
		for _, s := range settingsOf(answer) {
			before, again := first[key{s.message, s.name}]
			switch {
			case !again:
				first[key{s.message, s.name}] = said{s.value, i}
			case before.value != s.value:
				out = append(out, Conflict{
					Message: s.message, Name: s.name,
					Kept: before.value, Dropped: s.value, First: before.answer, Other: i,
				})
			}
		}
	}
	return out
}

// settingsOf is what one answer asks for, in the same order each time.
func settingsOf(a *v1beta1.ContainerAllocateResponse) (out []setting) {
	for _, name := range slices.Sorted(maps.Keys(a.GetEnvs())) {
		out = append(out, setting{"Environment variable has conflicting setting", name, a.Envs[name]})
	}
	for _, d := range a.GetDevices() {
		out = append(out, setting{"Container device has conflicting mapping host devices",
			d.GetContainerPath(), d.GetHostPath()})
	}
	for _, m := range a.GetMounts() {
		out = append(out, setting{"Container mount has conflicting mapping host mounts",
			m.GetContainerPath(), m.GetHostPath()})
	}
	for _, name := range slices.Sorted(maps.Keys(a.GetAnnotations())) {
		out = append(out, setting{"Annotation has conflicting setting", name, a.Annotations[name]})
	}
	return out
}
