package images

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/files"
)

const (
	version = "kubelet.config.k8s.io/v1beta1"
	// maxRecord bounds a record in bytes, maxRecords the number of records.
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
	if err := files.Replace(f.path(about), text); err != nil {
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

// read reads all records of a folder except unreadable ones. It creates the folder if it does not
// exist.
func read[T any](f folder, take func(T)) error {
	if err := os.MkdirAll(f.dir(), 0o700); err != nil {
		return fmt.Errorf("make directory for records of images: %w", err)
	}
	entries, err := os.ReadDir(f.dir())
	if err != nil {
		return fmt.Errorf("list records of images: %w", err)
	}
	n := 0
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) || len(e.Name()) != len(prefix)+2*sha256.Size {
			continue
		}
		if n++; n > maxRecords {
			return fmt.Errorf("there are more than %d records in %s; remove those of images that "+
				"are gone", maxRecords, f.dir())
		}
		path := filepath.Join(f.dir(), e.Name())
		text, err := files.Read(path, maxRecord)
		var record T
		if err == nil {
			err = json.Unmarshal(text, &record)
		}
		if err != nil {
			klog.Background().Error(err, "An unreadable record of an image is ignored", "file", path)
			continue
		}
		take(record)
	}
	return nil
}
