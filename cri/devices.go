package cri

import (
	"maps"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// settings are what device plugins ask for one container, merged. The first answer wins where
// two name the same variable, container path, annotation or CDI device.
type settings struct {
	envs        []*runtimeapi.KeyValue
	mounts      []*runtimeapi.Mount
	devices     []*runtimeapi.Device
	annotations map[string]string
	cdi         []*runtimeapi.CDIDevice
}

// deviceSettings merges the answers in the given order; variables of one answer are sorted by
// name, so that a container is created the same way each time.
func deviceSettings(answers []*v1beta1.ContainerAllocateResponse) settings {
	s := settings{annotations: map[string]string{}}
	for _, answer := range answers {
		for _, name := range slices.Sorted(maps.Keys(answer.GetEnvs())) {
			s.envs = addOnce(s.envs, keyValue(name, answer.Envs[name]),
				(*runtimeapi.KeyValue).GetKey)
		}
		for _, mount := range answer.GetMounts() {
			s.mounts = addOnce(s.mounts, &runtimeapi.Mount{
				ContainerPath: mount.ContainerPath,
				HostPath:      mount.HostPath,
				Readonly:      mount.ReadOnly,
			}, (*runtimeapi.Mount).GetContainerPath)
		}
		for _, device := range answer.GetDevices() {
			s.devices = addOnce(s.devices, &runtimeapi.Device{
				ContainerPath: device.ContainerPath,
				HostPath:      device.HostPath,
				Permissions:   device.Permissions,
			}, (*runtimeapi.Device).GetContainerPath)
		}
		for name, value := range answer.GetAnnotations() {
			if _, taken := s.annotations[name]; !taken {
				s.annotations[name] = value
			}
		}
		for _, device := range answer.GetCdiDevices() {
			s.cdi = addOnce(s.cdi, &runtimeapi.CDIDevice{Name: device.Name},
				(*runtimeapi.CDIDevice).GetName)
		}
	}
	return s
}

// addOnce appends item unless list has one with its key.
func addOnce[T any](list []T, item T, key func(T) string) []T {
	wanted := key(item)
	if slices.ContainsFunc(list, func(have T) bool { return key(have) == wanted }) {
		return list
	}
	return append(list, item)
}
