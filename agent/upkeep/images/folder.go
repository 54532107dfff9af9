package images

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/files"
)

const (
	version = "kubelet.config.k8s.io/v1beta1"
	// maxRecord bounds a record in bytes, maxRecords the number of records that are read.
	maxRecord, maxRecords = 1 << 20, 10_000
	prefix                = "sha256-"
)

// folder holds a file for each record of one kind. A hash of the record's subject is the file's
// name.
type folder struct{ root, name string }

func (f folder) dir() string { return filepath.Join(f.root, f.name) }

func (f folder) path(about string) string {
	sum := sha256.Sum256([]byte(about))
	return filepath.Join(f.dir(), prefix+hex.EncodeToString(sum[:]))
}

func (f folder) write(about string, record any) error {
	text, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode record of %s: %w", about, err)
	}
	path := f.path(about)
	if err = files.MakeWay(path); err == nil {
		err = files.Replace(path, text)
	}
	if err != nil {
		return fmt.Errorf("write record of %s: %w", about, err)
	}
	return nil
}

// remove removes a record if it exists.
func (f folder) remove(about string) error {
	if err := files.Remove(f.path(about)); err != nil {
		return fmt.Errorf("remove record of %s: %w", about, err)
	}
	return nil
}

// makeFolder makes a folder of records. A file in its place is moved aside: the error is
// files.ErrUnusable then, and the folder is there.
func makeFolder(path string) error {
	if err := files.MakeFolder(path, 0o700, time.Now()); err != nil {
		return fmt.Errorf("make directory for records of images: %w", err)
	}
	return nil
}

// read reads the records of a folder. about returns a record's subject. lost has the paths of those
// that are unreadable or another subject's, and of those beyond the bound.
func read[T any](f folder, about func(T) string) (all []T, lost []string, err error) {
	entries, err := os.ReadDir(f.dir())
	if err != nil {
		return nil, nil, fmt.Errorf("list records of images: %w", err)
	}
	n := 0
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || len(e.Name()) != len(prefix)+2*sha256.Size {
			continue
		}
		path := filepath.Join(f.dir(), e.Name())
		if n++; n > maxRecords {
			lost = append(lost, path)
			continue
		}
		text, err := files.Read(path, maxRecord)
		var record T
		if err == nil {
			err = json.Unmarshal(text, &record)
		}
		if err == nil && f.path(about(record)) != path {
			err = errors.New("it is another image's")
		}
		if err != nil {
			klog.Background().Error(err, "A record of an image is lost: pods need a login of their own "+
				"for it", "file", path)
			lost = append(lost, path)
			continue
		}
		all = append(all, record)
	}
	if n > maxRecords {
		klog.Background().Info("There are more records of images than are read: pods need a login of their "+
			"own for the images of the others. Remove records of images that are gone", "folder", f.dir(),
			"records", n, "read", maxRecords)
	}
	return all, lost, nil
}
