package volume

// goneError names a volume of such a type.
type goneError string

func (e goneError) Error() string { return string(e) }

// insteadOf says what to use in place of a type of volumes that no version will support; "": it is none
// of these. Kubernetes has removed them, or has deprecated them for drivers of CSI.
func insteadOf(field string) string {
	const removed, deprecated = "Kubernetes has removed it; ", "Kubernetes has deprecated it; "
	const vendors = "use the CSI driver of the storage's vendor, by csi or persistentVolumeClaim"
	return map[string]string{
		"flexVolume":           deprecated + vendors,
		"gitRepo":              removed + "clone in an init container, into an emptyDir",
		"rbd":                  removed + "use CSI driver rbd.csi.ceph.com, by persistentVolumeClaim",
		"cephfs":               removed + "use CSI driver cephfs.csi.ceph.com, by persistentVolumeClaim",
		"glusterfs":            removed + "use nfs, or a CSI driver by persistentVolumeClaim",
		"flocker":              removed + vendors,
		"quobyte":              removed + vendors,
		"scaleIO":              removed + vendors,
		"storageos":            removed + vendors,
		"photonPersistentDisk": removed + vendors,
	}[field]
}
