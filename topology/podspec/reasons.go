package podspec

// Reasons of pods that the node ended: one that made room for a critical one, one that was evicted
// because the node ran short, one that ended since the machine goes down, and one whose device failed,
// for which the kubelet ends none.
const (
	ReasonPreempting   = "Preempting"
	ReasonEvicted      = "Evicted"
	ReasonShutdown     = "Terminated"
	ReasonDeviceFailed = "DeviceFailed"
)

// ReasonVolumeLimit is the kubelet's reason of a pod that is rejected since the node takes no more
// volumes of a driver.
const ReasonVolumeLimit = "VolumeAttachmentLimitExceeded"
