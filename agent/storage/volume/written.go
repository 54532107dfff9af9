package volume

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// Objects reads what volumes are made of from the API server. If it returns an error, the pod
// waits.
type Objects interface {
	ConfigMap(ctx context.Context, pod *v1.Pod, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, pod *v1.Pod, name string) (*v1.Secret, error)
	// Token returns a token of the pod's service account, and when to renew it.
	Token(ctx context.Context, pod *v1.Pod, want *v1.ServiceAccountTokenProjection) (
		token []byte, renew time.Time, err error)
	// TrustAnchors returns certificates in PEM, and when to ask again.
	TrustAnchors(ctx context.Context, want *v1.ClusterTrustBundleProjection) (
		pem []byte, again time.Time, err error)
	// Certificate returns a key and the certificate chain that a signer issued for it, in PEM, and
	// when to ask again.
	Certificate(ctx context.Context, pod *v1.Pod, want *v1.PodCertificateProjection) (
		key, chain []byte, again time.Time, err error)
}

const (
	// maxContent bounds the bytes of one volume's files with their names. An object of the API has
	// at most 1 MiB, and a volume is made of a few.
	maxContent = 16 << 20
	// perFile is the overhead of a file beside its name and its bytes.
	perFile = 64
	// maxPodContent bounds the same for all volumes of a pod together: they are in memory that no
	// limit of the pod counts.
	maxPodContent = 64 << 20
)

// content holds what a volume should have.
type content struct {
	files map[string]file // by path in the volume
	// again is when to make it again although nothing changed; zero: never.
	again time.Time
}

// room is the space left for a volume, and for all volumes of its pod. It is taken before a file is
// kept, so that nothing too large is ever in memory. A failure gives nothing back, so that all
// volumes of a pod together cost no more than the pod's room.
type room struct {
	volume int
	pod    *int
	over   bool // a file did not fit
}

// take reserves the room for a file.
func (r *room) take(path string, data int) error {
	need := perFile + len(path) + data
	r.over = r.over || need > r.volume || need > *r.pod
	switch {
	case need > r.volume:
		return fmt.Errorf("its files, with their names, take more than %d bytes; use fewer sources",
			maxContent)
	case need > *r.pod:
		return fmt.Errorf("its files, with their names, take more than what other volumes leave of "+
			"the %d bytes for all volumes of a pod; use fewer volumes", maxPodContent)
	}
	r.volume -= need
	*r.pod -= need
	return nil
}

// file is a file that the agent writes into a volume.
type file struct {
	data []byte
	mode fs.FileMode
	user *int64 // nil: the agent's own
}

// maker returns the content of a volume.
type maker func(ctx context.Context, from sources, t target) (content, error)

// sources has what contents are made from.
type sources struct {
	objects Objects // nil: there is no API server
	fields  *cri.Fields
	room    *room
	owned   bool // see look
}

// alone returns a content of one file.
func (s sources) alone(path string, f file, again time.Time) (content, error) {
	return content{map[string]file{path: f}, again}, s.room.take(path, len(f.data))
}

// written returns the plugin of volumes that the agent writes, all files at once. Types that may
// hold secrets are in memory, or on disk if we cannot mount for lack of root.
func written(field, name string, medium v1.StorageMedium, content maker) plugin {
	return plugin{from: inPods, field: field, name: name, relabel: true, written: true,
		facts: func(used) facts { return facts{own: true, onDisk: medium == v1.StorageMediumDefault} },
		setUp: func(ctx context.Context, m *makers, t target) (time.Time, error) {
			c, err := content(ctx, sources{m.cfg.Objects, m.cfg.Facts().Of(t.pod),
				&room{volume: maxContent, pod: t.room}, m.cfg.enabled(fileOwners)}, t)
			if err != nil {
				return time.Time{}, err
			}
			dir := v1.EmptyDirVolumeSource{Medium: medium}
			if !m.asRoot {
				dir.Medium = v1.StorageMediumDefault
			}
			bare := dir.Medium != v1.StorageMediumDefault && !t.have.mounted
			if bare || !t.have.complete {
				if err := m.makeEmptyDir(t, dir); err != nil {
					return time.Time{}, err
				}
			}
			last, began := m.last.take(t.pod.UID, t.path()), time.Now()
			now, err := replace(t.path(), c.files, owner{m.asRoot, groupOf(t.pod)}, last)
			if groupOf(t.pod) != nil && (last == nil || now == nil || now.name != last.name) {
				m.cfg.did(t.used, operation.ApplyAccess, began, err)
			}
			if err == nil {
				m.last.keep(t.pod.UID, t.path(), now)
			}
			return c.again, err
		}}
}

// groupOf returns the pod's fsGroup; nil: it has none.
func groupOf(pod *v1.Pod) *int64 {
	if sc := pod.Spec.SecurityContext; sc != nil {
		return sc.FSGroup
	}
	return nil
}

// look is the mode of a volume's files, and who owns them, unless a file has its own.
type look struct {
	mode fs.FileMode
	user *int64 // nil: the agent's own
	// owned: volumes and files may name an owner (KEP-5936).
	owned bool
}

// look returns what a volume's source says, and otherwise the mode of its type.
func (s sources) look(mode *int32, otherwise int32, user *int64) look {
	l := look{mode: fs.FileMode(ptr.Deref(mode, otherwise)), owned: s.owned}
	if l.owned {
		l.user = user
	}
	return l
}

// of returns a file whose item may have a mode and a user of its own.
func (l look) of(data []byte, mode *int32, user *int64) file {
	return file{data: data, mode: fs.FileMode(ptr.Deref(mode, int32(l.mode))), user: l.owner(user)}
}

func (l look) owner(own *int64) *int64 {
	if l.owned && own != nil {
		return own
	}
	return l.user
}

// credential returns a file that only the pod's processes can read, if it is known who they are: its
// owner, the one user of all containers, or the pod's group.
func (l look) credential(pod *v1.Pod, data []byte, own *int64) file {
	f := file{data: data, mode: l.mode, user: l.owner(own)}
	if f.user == nil {
		f.user = oneUser(pod)
	}
	if f.user != nil || groupOf(pod) != nil {
		f.mode = 0o600
	}
	return f
}

// oneUser returns the user that every container of the pod runs as; nil: they differ, or only the
// image says it.
func oneUser(pod *v1.Pod) *int64 {
	var shared, user *int64
	if sc := pod.Spec.SecurityContext; sc != nil {
		shared = sc.RunAsUser
	}
	same := func(own *v1.SecurityContext) bool {
		its := shared
		if own != nil && own.RunAsUser != nil {
			its = own.RunAsUser
		}
		if its == nil || user != nil && *user != *its {
			return false
		}
		user = its
		return true
	}
	for c := range podspec.All(pod) {
		if !same(c.SecurityContext) {
			return nil
		}
	}
	return user
}
