package status

import v1 "k8s.io/api/core/v1"

// devices is the health of what a container holds. Of one that holds nothing any more the last that
// was known stays, so that a dead pod tells which of its devices had failed.
func devices(in Input, container string) []v1.ResourceStatus {
	if now, holds := in.Devices[container]; holds {
		return now
	}
	if was := in.derived.was[container]; was != nil {
		return was.AllocatedResourcesStatus
	}
	return nil
}
