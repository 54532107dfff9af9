package podspec

// Reasons for which the node ends a pod: to make room for a critical pod, because the node ran short,
// because the machine goes down, and because a device failed. For the last the kubelet ends no pod.
const (
	ReasonPreempting   = "Preempting"
	ReasonEvicted      = "Evicted"
	ReasonShutdown     = "Terminated"
	ReasonDeviceFailed = "DeviceFailed"
)

// ReasonVolumeLimit is the kubelet's reason of a pod that is rejected since the node takes no more
// volumes of a driver.
const ReasonVolumeLimit = "VolumeAttachmentLimitExceeded"
