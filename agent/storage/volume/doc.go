// Package volume keeps a pod's files on the node: its directory, its volumes, and the files that
// the agent mounts into containers itself (/etc/hosts, the termination message).
//
// The layout below the root directory is the kubelet's, so either agent can take over what the
// other left:
//
//	pods/UID/volumes/kubernetes.io~empty-dir/NAME       an emptyDir, maybe a mounted tmpfs
//	pods/UID/plugins/kubernetes.io~empty-dir/NAME/ready the emptyDir is complete
//	pods/UID/volumes/kubernetes.io~configmap/NAME       what the agent writes; also ~secret,
//	                                                    ~downward-api and ~projected: tmpfs
//	pods/UID/plugins/kubernetes.io~empty-dir/wrapped_NAME/ready  the like for these
//	pods/UID/volumes/kubernetes.io~local-volume/PV      a persistent volume, mounted; also ~nfs
//	plugins/kubernetes.io/local-volume/mounts/PV        a persistent volume on a block device: its
//	                                                    file system, mounted once for all pods
//	pods/UID/volumeDevices/kubernetes.io~local-volume/PV  a link to a device that the pod gets
//	plugins/kubernetes.io~local-volume/volumeDevices/PV/UID  a mount of such a device, by a kubelet
//	pods/UID/numalet_claims                             what the pod's PVCs are bound to
//	pods/UID/volume-subpaths/VOLUME/CONTAINER/INDEX     bind mounts of subPaths; of a PVC's
//	                                                    volume VOLUME is the persistent volume
//	pods/UID/containers/CONTAINER/XXXXXXXX              termination messages, one per attempt
//	pods/UID/etc-hosts                                  the pod's /etc/hosts
//
// plugin.go has a table of the types of volumes, with the verbs of their whole life; each type has a file.
//
//	Volumes       makes, updates and removes the volumes of a pod
//	  Containers  what containers have of volumes
//	  Records     what containers leave: termination messages, hooks that are not done
//	  Meter       what room volumes of servers and drivers have, and how healthy they are
//	  Grower      which volumes this node has grown (growth.go decides)
//	  makers      what the verbs of the types work with
//	  due         when files must be written again
//	  operations  what was begun for pods, and what is counted of it
//	  remains     what earlier runs left that no type knows
//
//	what the pod should have ---.
//	                             reconcile -> steps: make, update, remove; each with its reason
//	what its directory has -----'
//
// Each pod's worker makes the pod's volumes: it reads the directory (find), and a pure function of
// both lists returns the steps (reconcile). So it also finds what an earlier run of the agent, or a
// kubelet, has made. A file system that hangs blocks only the pods that use it: calls that may hang
// have goroutines of their own (calls).
//
// Containers write to a volume while we resolve a subPath in it, so the kernel resolves it
// (openat2, RESOLVE_BENEATH, since 5.6): a relative symbolic link may lead anywhere inside the
// volume; an absolute one, or one that leaves the volume on its way, is refused. The file that was
// found is bind-mounted through its descriptor into volume-subpaths, which containers cannot reach,
// and the runtime gets that path. Without root there are no bind mounts; the runtime, which then
// has no more rights than we have, gets the resolved path.
//
// TearDown first unmounts everything below a pod's directory, and then deletes without following a
// link or entering a mount: the kernel refuses (RESOLVE_NO_XDEV), whatever a list of mounts said
// before. The file system is the only record of all this, except for what PVCs are bound to,
// which is read once and kept in memory too (boundPVCs). Memory also has when files must be written
// again (due); after a restart they are compared once. The kernel is asked about mounts place by
// place; its list of all mounts is read only when a pod's directory is removed.
//
// Files that the agent writes are replaced together (replace): a reader sees those of one time.
package volume
