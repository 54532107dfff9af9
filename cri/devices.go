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
}

// deviceSettings merges the answers in the given order. It sorts the variables of one answer by
// name, so that a container is created the same way each time.
func deviceSettings(answers []*v1beta1.ContainerAllocateResponse) settings {
	s := settings{annotations: map[string]string{}}
	envs, mounts, devices, cdi := firsts{}, firsts{}, firsts{}, firsts{}
	for _, answer := range answers {
		for _, name := range slices.Sorted(maps.Keys(answer.GetEnvs())) {
			if envs.first(name) {
				s.envs = append(s.envs, keyValue(name, answer.Envs[name]))
			}
		}
		for _, mount := range answer.GetMounts() {
			if mounts.first(mount.ContainerPath) {
				s.mounts = append(s.mounts, &runtimeapi.Mount{
					ContainerPath: mount.ContainerPath,
					HostPath:      mount.HostPath,
					Readonly:      mount.ReadOnly,
				})
			}
		}
		for _, device := range answer.GetDevices() {
			if devices.first(device.ContainerPath) {
				s.devices = append(s.devices, &runtimeapi.Device{
					ContainerPath: device.ContainerPath,
					HostPath:      device.HostPath,
					Permissions:   device.Permissions,
				})
			}
		}
		for name, value := range answer.GetAnnotations() {
			if _, taken := s.annotations[name]; !taken {
				s.annotations[name] = value
			}
		}
		for _, device := range answer.GetCdiDevices() {
			if cdi.first(device.Name) {
				s.cdi = append(s.cdi, &runtimeapi.CDIDevice{Name: device.Name})
			}
		}
	}
	return s
}

// firsts holds the names seen so far.
type firsts map[string]bool

// first reports whether the name is new, and adds it.
func (f firsts) first(name string) bool {
	isNew := !f[name]
	f[name] = true
	return isNew
}
