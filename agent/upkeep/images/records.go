package images

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/metric"
)

// maxHolders bounds the recorded holders of one image; the oldest are dropped.
const maxHolders = 500

// Config says where and by which policy records are kept.
type Config struct {
	// Dir is the directory of the records.
	Dir      string
	Policy   Policy
	Registry metrics.KubeRegistry
}

// Records implements cri.PullRecords.
type Records struct {
	policy          Policy
	pulling, pulled folder
	checks          *metrics.CounterVec

	mu sync.Mutex // guards the fields below
	// intents counts the running pulls by image name. loginUnknown holds images whose login is unknown:
	// an earlier run of the agent left the intent, or the record of a pull could not be written. Their
	// intents stay, with count 0, when no pull is running.
	intents      map[string]int
	loginUnknown sets.Set[string]
	known        map[string]kubeletv1beta1.ImagePulledRecord // by the runtime's image id
	// lost has the paths of records that could not be read: their images were pulled, the login is
	// unknown.
	lost sets.Set[string]
}

// Open reads the records. A file that cannot be read is logged: pods need a login of their own for
// its image. A file in a folder's place is moved aside, which is an error that is files.ErrUnusable
// beside the Records. Any other error comes without Records.
func Open(c Config) (*Records, error) {
	var s metric.Set
	r := &Records{
		policy: c.Policy, pulling: folder{c.Dir, "pulling"}, pulled: folder{c.Dir, "pulled"},
		lost: sets.New[string](), intents: map[string]int{}, loginUnknown: sets.New[string](), known: map[string]kubeletv1beta1.ImagePulledRecord{},
		checks: s.Counters("kubelet_imagemanager_image_mustpull_checks_total",
			"How it was decided whether a pod may use an image that is there.", "result"),
	}
	s.Read("kubelet_imagemanager_ondisk_pullintents", "Records of pulls that have begun.", nil,
		func(tell metric.Tell) { tell(float64(r.count(func() int { return len(r.intents) }))) })
	s.Read("kubelet_imagemanager_ondisk_pulledrecords", "Records of with whose login images were "+
		"pulled.", nil,
		func(tell metric.Tell) { tell(float64(r.count(func() int { return len(r.known) }))) })
	var moved error
	for _, dir := range []string{c.Dir, r.pulling.dir(), r.pulled.dir()} {
		err := makeFolder(dir)
		if err != nil && !errors.Is(err, files.ErrUnusable) {
			return nil, err
		}
		moved = errors.Join(moved, err)
	}
	if err := r.read(); err != nil {
		return nil, err
	}
	if err := s.Register(c.Registry); err != nil {
		return nil, err
	}
	return r, moved
}

// read reads what an earlier run left.
func (r *Records) read() error {
	pulling, lost, err := read(r.pulling, func(i kubeletv1beta1.ImagePullIntent) string { return i.Image })
	if err != nil {
		return err
	}
	for _, i := range pulling {
		r.intents[i.Image] = 0
		r.loginUnknown.Insert(i.Image)
	}
	r.lost.Insert(lost...)
	pulled, lost, err := read(r.pulled,
		func(p kubeletv1beta1.ImagePulledRecord) string { return p.ImageRef })
	if err != nil {
		return err
	}
	for _, p := range pulled {
		r.known[p.ImageRef] = p
	}
	r.lost.Insert(lost...)
	return nil
}

func (r *Records) count(of func() int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return of()
}

// Pulling records that the image is about to be pulled.
func (r *Records) Pulling(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.intents[image]; !there {
		intent := kubeletv1beta1.ImagePullIntent{Image: image}
		intent.Kind, intent.APIVersion = "ImagePullIntent", version
		if err := r.pulling.write(image, intent); err != nil {
			return err
		}
		if path := r.pulling.path(image); r.lost.Has(path) {
			r.lost.Delete(path)
			r.loginUnknown.Insert(image)
		}
	}
	r.intents[image]++
	return nil
}

// Failed ends such a record after a failed pull.
func (r *Records) Failed(image string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endedLocked(image)
}

func (r *Records) endedLocked(image string) {
	if r.intents[image]--; r.intents[image] > 0 || r.loginUnknown.Has(image) {
		return
	}
	delete(r.intents, image)
	if err := r.pulling.remove(image); err != nil {
		klog.Background().Error(err, "Removing the record of a finished pull failed", "image", image)
	}
}

// Pulled records whose login the image was pulled with.
func (r *Records) Pulled(image, id string, by cri.Holder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.addLocked(cri.Repository(image), id, by); err != nil {
		// Every pod must pull the image again: the intent stays, and shows that the image was not
		// preloaded.
		klog.Background().Error(err, "Recording the login of a pulled image failed",
			"image", image)
		r.loginUnknown.Insert(image)
	} else {
		r.loginUnknown.Delete(image)
	}
	r.endedLocked(image)
}

// addLocked adds a holder to an image's record.
func (r *Records) addLocked(repository, id string, by cri.Holder) error {
	old := r.known[id]
	record := *old.DeepCopy()
	if record.CredentialMapping == nil {
		record.CredentialMapping = map[string]kubeletv1beta1.ImagePullCredentials{}
	}
	was := record.CredentialMapping[repository]
	is := with(was, by)
	if old.ImageRef != "" && same(was, is) {
		return nil
	}
	record.CredentialMapping[repository] = is
	return r.putLocked(id, record)
}

func (r *Records) putLocked(id string, record kubeletv1beta1.ImagePulledRecord) error {
	record.Kind, record.APIVersion = "ImagePulledRecord", version
	record.ImageRef, record.LastUpdatedTime = id, metav1.Now()
	if err := r.pulled.write(id, record); err != nil {
		return err
	}
	r.known[id] = record
	r.lost.Delete(r.pulled.path(id))
	return nil
}

// with returns the credentials of an image after adding a holder.
func with(c kubeletv1beta1.ImagePullCredentials, by cri.Holder,
) kubeletv1beta1.ImagePullCredentials {
	switch {
	case c.NodePodsAccessible || by.Kind == "":
		return kubeletv1beta1.ImagePullCredentials{NodePodsAccessible: true}
	case by.Kind == cri.HolderServiceAccount:
		c.KubernetesServiceAccounts = add(c.KubernetesServiceAccounts, accountOf(by),
			func(a, b kubeletv1beta1.ImagePullServiceAccount) bool { return a == b })
	default:
		c.KubernetesSecrets = add(c.KubernetesSecrets, secretOf(by), isSecret)
	}
	return c
}

// add returns the last holders, with one as the newest.
func add[T any](all []T, one T, is func(a, b T) bool) []T {
	others := slices.DeleteFunc(slices.Clone(all), func(old T) bool { return is(old, one) })
	return append(others, one)[max(len(others)+1-maxHolders, 0):]
}

func same(a, b kubeletv1beta1.ImagePullCredentials) bool {
	return a.NodePodsAccessible == b.NodePodsAccessible &&
		slices.Equal(a.KubernetesSecrets, b.KubernetesSecrets) &&
		slices.Equal(a.KubernetesServiceAccounts, b.KubernetesServiceAccounts)
}

func secretOf(h cri.Holder) kubeletv1beta1.ImagePullSecret {
	return kubeletv1beta1.ImagePullSecret{
		UID: h.UID, Namespace: h.Namespace, Name: h.Name, CredentialHash: h.Hash,
	}
}

func accountOf(h cri.Holder) kubeletv1beta1.ImagePullServiceAccount {
	return kubeletv1beta1.ImagePullServiceAccount{
		UID: h.UID, Namespace: h.Namespace, Name: h.Name,
	}
}

// Accessible reports whether a pod may use an image that the runtime has; held returns the holders
// of the pod's logins for it.
func (r *Records) Accessible(image, id string, held func() []cri.Holder) bool {
	ok, why := r.accessible(image, id, held)
	r.checks.WithLabelValues(why).Inc()
	return ok
}

func (r *Records) accessible(image, id string, held func() []cri.Holder) (bool, string) {
	record, pulled := r.find(image, id)
	if !r.policy.verifies(image, pulled) {
		return true, "credentialPolicyAllowed"
	}
	has, ok := record.CredentialMapping[cri.Repository(image)]
	switch {
	case !ok:
		return false, "mustAuthenticate"
	case has.NodePodsAccessible:
		return true, "credentialRecordFound"
	}
	for _, h := range held() {
		if holds(has, h) {
			r.learn(image, id, h)
			return true, "credentialRecordFound"
		}
	}
	return false, "mustAuthenticate"
}

// find returns the record of an image, and whether an agent pulled it or tried to.
func (r *Records) find(image, id string) (kubeletv1beta1.ImagePulledRecord, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, known := r.known[id]
	_, pulling := r.intents[image]
	lost := r.lost.Has(r.pulled.path(id)) || r.lost.Has(r.pulling.path(image))
	return record, known || pulling || lost
}

// holds reports whether a holder is among the credentials: as the same secret, a secret with the
// same login, or the same service account.
func holds(c kubeletv1beta1.ImagePullCredentials, h cri.Holder) bool {
	switch h.Kind {
	case cri.HolderServiceAccount:
		return slices.Contains(c.KubernetesServiceAccounts, accountOf(h))
	case cri.HolderSecret:
		own := secretOf(h)
		return slices.ContainsFunc(c.KubernetesSecrets,
			func(s kubeletv1beta1.ImagePullSecret) bool {
				return isSecret(s, own) || s.CredentialHash != "" && s.CredentialHash == own.CredentialHash
			})
	}
	return false
}

// isSecret reports whether two are of one secret, whatever it says.
func isSecret(a, b kubeletv1beta1.ImagePullSecret) bool {
	a.CredentialHash = b.CredentialHash
	return a == b
}

// learn records a holder whose access was derived from another's.
func (r *Records) learn(image, id string, by cri.Holder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.known[id]; !known {
		return
	}
	if err := r.addLocked(cri.Repository(image), id, by); err != nil {
		klog.Background().Error(err, "Recording who may use an image failed", "image", image)
	}
}

// Image is an image of the runtime, with its names.
type Image struct {
	ID    string
	Names []string
}

// Keep brings the records in line with the images that the runtime had at a time. A nil Records keeps
// none.
func (r *Records) Keep(all []Image, at time.Time) {
	if r == nil {
		return
	}
	if err := r.Recover(all); err != nil {
		klog.Background().Error(err, "Pulls that did not end stay on record")
	}
	known := sets.New[string]()
	for _, i := range all {
		known.Insert(i.ID).Insert(i.Names...)
	}
	r.Prune(known, at)
}

// Recover settles interrupted pulls of an earlier run of the agent, and lost records: if such an image
// is present, the login it was pulled with is unknown.
func (r *Records) Recover(all []Image) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range all {
		if !r.lost.Has(r.pulled.path(one.ID)) {
			continue
		}
		if err := r.putLocked(one.ID, kubeletv1beta1.ImagePulledRecord{}); err != nil {
			return fmt.Errorf("recover the record of image %s: %w", one.ID, err)
		}
	}
	for image, pulls := range r.intents {
		if pulls > 0 {
			continue
		}
		for _, one := range all {
			_, known := r.known[one.ID]
			if known || !slices.Contains(one.Names, cri.FullName(image)) {
				continue
			}
			if err := r.putLocked(one.ID, kubeletv1beta1.ImagePulledRecord{}); err != nil {
				return fmt.Errorf("recover the record of image %s: %w", image, err)
			}
		}
		delete(r.intents, image)
		r.loginUnknown.Delete(image)
		if err := r.pulling.remove(image); err != nil {
			return err
		}
	}
	return nil
}

// Prune drops records of images that are not in left, by ids or names, unless they were pulled
// after since.
func (r *Records) Prune(left sets.Set[string], since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, record := range r.known {
		if left.Has(id) || !record.LastUpdatedTime.Time.Before(since) {
			continue
		}
		delete(r.known, id)
		if err := r.pulled.remove(id); err != nil {
			klog.Background().Error(err, "Removing the record of a removed image failed",
				"image", cmp.Or(record.ImageRef, id))
		}
	}
}
