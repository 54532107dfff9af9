package cri

import (
	"maps"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// settings merges what device plugins ask for one container. If two answers set the same variable,
// container path, annotation or CDI device, the first wins.
type settings struct {
	envs        []*runtimeapi.KeyValue
	mounts      []*runtimeapi.Mount
	devices     []*runtimeapi.Device
	annotations map[string]string
	cdi         []*runtimeapi.CDIDevice
	conflicts   []Conflict
	said        map[setting]said
}

// setting is one thing that an answer asks for; kind is also the text of a conflict about it.
type setting struct{ kind, name string }

// said is the first value of a setting, and the answer that has it.
type said struct {
	value  string
	answer int
}

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

// Conflicts lists the settings that contradict an earlier answer, by answer and name.
func Conflicts(answers []*v1beta1.ContainerAllocateResponse) []Conflict {
	return deviceSettings(answers).conflicts
}

// deviceSettings merges the answers in the given order. It sorts the variables of one answer by
// name, so that a container is created the same way each time.
func deviceSettings(answers []*v1beta1.ContainerAllocateResponse) settings {
	s := settings{annotations: map[string]string{}, said: map[setting]said{}}
	for i, answer := range answers {
		for _, name := range slices.Sorted(maps.Keys(answer.GetEnvs())) {
			value := answer.Envs[name]
			if s.first(i, setting{"Environment variable has conflicting setting", name}, value) {
				s.envs = append(s.envs, keyValue(name, value))
			}
		}
		for _, d := range answer.GetDevices() {
			if s.first(i, setting{"Container device has conflicting mapping host devices",
				d.ContainerPath}, d.HostPath) {
				s.devices = append(s.devices, &runtimeapi.Device{
					ContainerPath: d.ContainerPath, HostPath: d.HostPath, Permissions: d.Permissions,
				})
			}
		}
		for _, m := range answer.GetMounts() {
			if s.first(i, setting{"Container mount has conflicting mapping host mounts",
				m.ContainerPath}, m.HostPath) {
				s.mounts = append(s.mounts, &runtimeapi.Mount{
					ContainerPath: m.ContainerPath, HostPath: m.HostPath, Readonly: m.ReadOnly,
				})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(answer.GetAnnotations())) {
			value := answer.Annotations[name]
			if s.first(i, setting{"Annotation has conflicting setting", name}, value) {
				s.annotations[name] = value
			}
		}
		for _, d := range answer.GetCdiDevices() {
			if s.first(i, setting{"CDI device", d.Name}, d.Name) {
				s.cdi = append(s.cdi, &runtimeapi.CDIDevice{Name: d.Name})
			}
		}
	}
	return s
}

// first reports whether no answer had the setting before. Another value than before is a conflict.
func (s *settings) first(answer int, of setting, value string) bool {
	before, again := s.said[of]
	switch {
	case !again:
		s.said[of] = said{value, answer}
	case before.value != value:
		s.conflicts = append(s.conflicts, Conflict{
			Message: of.kind, Name: of.name,
			Kept: before.value, Dropped: value, First: before.answer, Other: answer,
		})
	}
	return !again
}
