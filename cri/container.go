package cri

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// ContainerOptions holds what the node adds to a container's spec.
type ContainerOptions struct {
	// Attempt is the restart count.
	Attempt uint32
	// Image is the result of Images.Ensure.
	Image ImageRef
	Facts Facts
	// Objects holds the API objects that the environment refers to; nil if there is no API server.
	Objects *Objects
	// File reads a file in one of the pod's volumes, for the environment; nil before the volumes
	// exist.
	File func(volume, path string) ([]byte, error)
	// Devices holds the answers of device plugins for this container, in the order of its resources.
	Devices []*v1beta1.ContainerAllocateResponse
	// Mounts and BlockDevices are the volumes. The mounts and devices of plugins come before them.
	Mounts       []*runtimeapi.Mount
	BlockDevices []*runtimeapi.Device
	Resources    *runtimeapi.LinuxContainerResources
	Security     SecurityOptions
	// Target is the id of the container whose process namespace this one joins. If it is "", the
	// container has its own, or shares the pod's or the host's.
	Target string
}

// ContainerConfig builds the configuration that the runtime creates the container from. It is a
// pure function. A *StartError with ReasonCreateContainerConfig means that the spec asks for
// something that does not exist or is not available.
func ContainerConfig(
	pod *v1.Pod, container *v1.Container, o ContainerOptions,
) (*runtimeapi.ContainerConfig, error) {
	envs, left, err := environment(pod, container, o)
	if err != nil {
		return nil, containerError(container, err)
	}
	command, args, err := commandLine(container, envs, left)
	if err != nil {
		return nil, containerError(container, err)
	}
	security, err := containerSecurity(pod, container, o.Image.User, o.Security)
	if err != nil {
		return nil, ConfigError(err)
	}
	// A pod that shares process IDs, with the host or among its containers, sees the target anyway.
	if ns := security.NamespaceOptions; o.Target != "" &&
		ns.Pid == runtimeapi.NamespaceMode_CONTAINER {
		ns.Pid, ns.TargetId = runtimeapi.NamespaceMode_TARGET, o.Target
	}
	signal, err := stopSignal(container)
	if err != nil {
		return nil, ConfigError(err)
	}
	devices := deviceSettings(o.Devices)
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: container.Name, Attempt: o.Attempt},
		Image: &runtimeapi.ImageSpec{
			Image: o.Image.Ref, UserSpecifiedImage: container.Image,
		},
		Command:     command,
		Args:        args,
		WorkingDir:  container.WorkingDir,
		Envs:        envs,
		Mounts:      o.Security.IDs.mapped(append(devices.mounts, o.Mounts...)),
		Devices:     append(devices.devices, o.BlockDevices...),
		CDIDevices:  devices.cdi,
		Labels:      containerLabels(pod, container),
		Annotations: containerAnnotations(pod, container, o.Attempt, devices.annotations),
		LogPath:     ContainerLogPath(container.Name, o.Attempt),
		Stdin:       container.Stdin,
		StdinOnce:   container.StdinOnce,
		Tty:         container.TTY,
		StopSignal:  signal,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       o.Resources,
			SecurityContext: security,
		},
	}, nil
}

// containerError reports that the container cannot be created from its spec.
func containerError(container *v1.Container, err error) error {
	return ConfigError(fmt.Errorf("container %q: %w", container.Name, err))
}

func containerLabels(pod *v1.Pod, container *v1.Container) map[string]string {
	return map[string]string{
		LabelPodName:       pod.Name,
		LabelPodNamespace:  pod.Namespace,
		LabelPodUID:        string(pod.UID),
		LabelContainerName: container.Name,
	}
}

// containerAnnotations adds what an agent, ours or a kubelet, needs to stop and report the
// container when its spec is gone. These annotations win over those of device plugins.
func containerAnnotations(
	pod *v1.Pod, container *v1.Container, attempt uint32, annotations map[string]string,
) map[string]string {
	annotations[AnnotationHash] = ContainerHash(container)
	annotations[AnnotationRestartCount] = strconv.FormatUint(uint64(attempt), 10)
	annotations[AnnotationTerminationMessagePath] = container.TerminationMessagePath
	annotations[AnnotationTerminationMessagePolicy] = string(container.TerminationMessagePolicy)
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		annotations[AnnotationPodDeletionGrace] = strconv.FormatInt(*grace, 10)
	}
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil {
		annotations[AnnotationPodTerminationGrace] = strconv.FormatInt(*grace, 10)
	}
	// JSON can encode all values of these two types, so the errors are always nil.
	if container.Lifecycle != nil && container.Lifecycle.PreStop != nil {
		text, _ := json.Marshal(container.Lifecycle.PreStop)
		annotations[AnnotationPreStopHandler] = string(text)
	}
	if len(container.Ports) > 0 {
		text, _ := json.Marshal(container.Ports)
		annotations[AnnotationContainerPorts] = string(text)
	}
	return annotations
}

// stopSignal converts the API's name of a signal (SIGTERM, SIGRTMIN+1, SIGRTMAX-1) to CRI's.
func stopSignal(container *v1.Container) (runtimeapi.Signal, error) {
	if container.Lifecycle == nil || container.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT, nil
	}
	signal := string(*container.Lifecycle.StopSignal)
	name := "SIGNAL_" + strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(signal)
	number, ok := runtimeapi.Signal_value[name]
	if !ok {
		return 0, fmt.Errorf("container %q: lifecycle.stopSignal %q is not a signal of Linux",
			container.Name, signal)
	}
	return runtimeapi.Signal(number), nil
}
