package cri

import (
	"maps"
	"slices"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Conflict is a setting of a container that two device plugins answered differently. The container
// gets the first answer.
type Conflict struct {
	// Message names the kind of conflict, in the kubelet's words.
	Message string
	// Name is the name of the variable or annotation, or the path in the container.
	Name string
	// Kept is the value in the answer First, Dropped the value in the answer Other.
	Kept, Dropped string
	First, Other  int
}

// setting is one thing that an answer asks for; message is the text of a conflict about it.
type setting struct{ message, name, value string }

// Conflicts lists the settings that contradict an earlier answer, by answer and name.
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

// settingsOf lists the settings of one answer, always in the same order.
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
