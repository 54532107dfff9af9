package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/files"
)

const (
	// maxMessage bounds the bytes read of a termination message.
	maxMessage = 4096
	// The last lines of a log can replace the message, up to this many bytes.
	maxLogLines = 80
	maxLogBytes = 2048
	// logWindow is large enough for maxLogLines lines with time stamps, or for maxLogBytes of text.
	logWindow = 64 << 10

	// keptMessages is the number of attempts whose messages are kept: status shows the current and
	// the last.
	keptMessages = 2
)

// Records keeps what pods' containers leave beside their volumes.
type Records struct{ layout layout }

// Exit describes how an attempt at running a container ended.
type Exit struct {
	Attempt uint32
	Code    int32
	// LogPath is the attempt's log file as CRI writes it.
	LogPath string
}

// terminationMount makes an empty file for this attempt's termination message and returns its
// mount; nil if the container names no path for it.
func (r Records) terminationMount(
	pod *v1.Pod, container *v1.Container, attempt uint32,
) (*runtimeapi.Mount, error) {
	if container.TerminationMessagePath == "" {
		return nil, nil
	}
	path, err := r.terminationFile(pod.UID, container.Name, attempt)
	if err != nil {
		return nil, err
	}
	if err := makeTerminationFile(path); err != nil {
		return nil, fmt.Errorf("create termination message file: %w", err)
	}
	if attempt >= keptMessages {
		old, err := r.terminationFile(pod.UID, container.Name, attempt-keptMessages)
		if err != nil {
			return nil, err
		}
		if err := files.Remove(old); err != nil {
			return nil, fmt.Errorf("remove old termination message: %w", err)
		}
	}
	return &runtimeapi.Mount{
		ContainerPath:  absolute(container.TerminationMessagePath),
		HostPath:       path,
		SelinuxRelabel: true,
	}, nil
}

// terminationFile returns where an attempt's message is. The file is named after the attempt, so no
// record of it is needed; the kubelet uses random names.
func (r Records) terminationFile(
	uid types.UID, container string, attempt uint32,
) (string, error) {
	if err := component("container", container); err != nil {
		return "", err
	}
	dir, err := r.layout.podDir(uid)
	return filepath.Join(dir, containersDir, container, fmt.Sprintf("%08x", attempt)), err
}

// makeTerminationFile makes an empty file that every user may write.
func makeTerminationFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return err
	}
	// An earlier try at creating this attempt's container may have left one.
	if err := files.Remove(path); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(file.Chmod(0o666), file.Close())
}

// TerminationMessage returns what the container left at its terminationMessagePath. With the policy
// FallbackToLogsOnError, the end of its log replaces the message of an attempt that failed without
// one.
func (r Records) TerminationMessage(
	pod *v1.Pod, container *v1.Container, exit Exit,
) (string, error) {
	var message []byte
	if container.TerminationMessagePath != "" {
		path, err := r.terminationFile(pod.UID, container.Name, exit.Attempt)
		if err != nil {
			return "", err
		}
		if message, err = readEnd(path, maxMessage); errors.Is(err, fs.ErrNotExist) {
			message, err = readForeignMessage(filepath.Dir(path))
		}
		if err != nil {
			return "", fmt.Errorf("read termination message of container %q: %w",
				container.Name, err)
		}
	}
	fallback := container.TerminationMessagePolicy == v1.TerminationMessageFallbackToLogsOnError
	if len(message) == 0 && fallback && exit.Code != 0 && exit.LogPath != "" {
		tail, err := readLogEnd(exit.LogPath)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("read log of container %q: %w", container.Name, err)
		}
		message = logText(tail)
	}
	return strings.ToValidUTF8(string(message), "?"), nil
}

// readForeignMessage reads the newest message of an adopted container, which an agent with random
// file names left in dir.
func readForeignMessage(dir string) ([]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var newest fs.FileInfo
	for _, entry := range entries {
		number, err := strconv.ParseUint(entry.Name(), 16, 32)
		// Attempts are small numbers; random names hardly ever are.
		if err != nil || len(entry.Name()) != 8 || number <= 0xffff {
			continue
		}
		if info, err := entry.Info(); err == nil &&
			(newest == nil || info.ModTime().After(newest.ModTime())) {
			newest = info
		}
	}
	if newest == nil {
		return nil, nil
	}
	return readEnd(filepath.Join(dir, newest.Name()), maxMessage)
}

// readLogEnd reads the end of a container's log.
func readLogEnd(path string) ([]byte, error) {
	dir, err := files.OpenFolder(cri.LogsDirOf(path), filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	file, err := dir.Open(filepath.Base(path))
	if err != nil {
		return nil, err
	}
	return endOf(file, logWindow)
}

// readEnd reads at most the last n bytes of a regular file. It follows no link and does not block
// on a pipe.
func readEnd(path string, n int64) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return endOf(file, n)
}

// endOf reads at most the last n bytes of a regular file, and closes it.
func endOf(file *os.File, n int64) ([]byte, error) {
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", file.Name())
	}
	start := max(info.Size()-n, 0)
	return io.ReadAll(io.NewSectionReader(file, start, n))
}

// logText returns what a container wrote, from the last lines of its log. A line of the log is
// "TIME STREAM TAGS TEXT"; the tag P says that the container's line continues in the next one.
func logText(log []byte) []byte {
	lines := slices.Collect(bytes.Lines(log))
	if len(lines) > maxLogLines {
		lines = lines[len(lines)-maxLogLines:]
	}
	var text []byte
	for _, line := range lines {
		fields := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(" "), 4)
		if len(fields) < 4 {
			continue // its beginning is missing, or it is not a log
		}
		text = append(text, fields[3]...)
		if !slices.Contains(strings.Split(string(fields[2]), ":"), "P") {
			text = append(text, '\n')
		}
	}
	return text[max(len(text)-maxLogBytes, 0):]
}
