package status

import v1 "k8s.io/api/core/v1"

// devices returns the health of a container's devices. A container that holds none any more keeps
// the last health known, so that a dead pod shows which device failed.
func devices(in Input, container string) []v1.ResourceStatus {
	if now, holds := in.Devices[container]; holds {
		return now
	}
	if was := in.derived.was[container]; was != nil {
		return was.AllocatedResourcesStatus
	}
	return nil
}
