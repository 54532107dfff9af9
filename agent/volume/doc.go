// Package volume keeps a pod's files on the node: its directory, its volumes, and the files that
// the agent mounts into containers itself (/etc/hosts, the termination message).
//
// The layout below the root directory is the kubelet's, so that either agent can take over
// what the other left:
//
//	pods/UID/volumes/kubernetes.io~empty-dir/NAME       an emptyDir, maybe a mounted tmpfs
//	pods/UID/plugins/kubernetes.io~empty-dir/NAME/ready the emptyDir is complete
//	pods/UID/volumes/kubernetes.io~configmap/NAME       what the agent writes; also ~secret,
//	                                                    ~downward-api and ~projected: tmpfs
//	pods/UID/plugins/kubernetes.io~empty-dir/wrapped_NAME/ready  the like for these
//	pods/UID/volumes/kubernetes.io~local-volume/PV      a persistent volume, mounted; also ~nfs
//	plugins/kubernetes.io/local-volume/mounts/PV        the file system of a persistent volume that is a
//	                                                    block device, mounted once for all pods
//	pods/UID/volumeDevices/kubernetes.io~local-volume/PV  a link to one that pods have as a device
//	plugins/kubernetes.io~local-volume/volumeDevices/PV/UID  a mount of such a device, by a kubelet
//	pods/UID/numalet_claims                             what the pod's claims are bound to
//	pods/UID/volume-subpaths/VOLUME/CONTAINER/INDEX     bind mounts of subPaths
//	pods/UID/containers/CONTAINER/XXXXXXXX              termination messages, one per attempt
//	pods/UID/etc-hosts                                  the pod's /etc/hosts
//
// What the types of volumes differ in is in a table, plugin.go, with a file for each type.
//
//	what the pod is to have ---.
//	                            reconcile -> steps: make, update, remove; each with its reason
//	what is in its directory --'
//
// Each pod's volumes are brought to what they are to be by its own worker: it reads the directory
// (find), and a pure function of both lists says what to do (reconcile). What an earlier run of the
// agent, or a kubelet, has made is found again that way. A file system that hangs holds up nobody
// but the pods that use it: what may hang is called in a goroutine of its own (calls).
//
// A subPath names something in a directory that containers write to while we look, so it is
// resolved by the kernel (openat2, RESOLVE_BENEATH: since 5.6): a relative symbolic link may lead
// anywhere inside the volume; one that is absolute, or leaves the volume on its way, is refused.
// What was found is bind-mounted through its file descriptor into volume-subpaths, and the runtime
// gets that path, which containers cannot reach. Without root there are no bind mounts; the
// runtime, which then has no more rights than we have, gets the resolved path.
//
// Removing a pod's directory first unmounts what is below it and then deletes without ever
// following a link or entering a mount: the kernel refuses (RESOLVE_NO_XDEV), whatever a list
// of mounts said before. The file system is the only record of all that, with what claims are bound
// to, which is read once and held in memory too (claims). Besides, memory has
// when which files are to be written again (due), and after a restart they are compared once.
// What is mounted is asked of the kernel place by place; its list of all mounts is read only when a
// pod's directory is removed.
//
// Files that the agent writes are replaced all at once (replace): a reader has all of one time.
package volume
