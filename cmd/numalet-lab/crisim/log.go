package crisim

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	annotationTerminationPath = "io.kubernetes.container.terminationMessagePath"
)

func logPath(c *container) string {
	if c.config.GetLogPath() == "" || c.sandbox.config.GetLogDirectory() == "" {
		return ""
	}
	return filepath.Join(c.sandbox.config.GetLogDirectory(), c.config.GetLogPath())
}

func logStart(c *container) {
	r := c.config.GetLinux().GetResources()
	writeLog(c, fmt.Sprintf("started cpus=%s mems=%s", r.GetCpusetCpus(), r.GetCpusetMems()))
}

// logExit writes the termination message, as the process itself would, and a line to the log.
func logExit(c *container, how Exit) {
	writeLog(c, fmt.Sprintf("exited code=%d", how.Code))
	inside := c.config.GetAnnotations()[annotationTerminationPath]
	if how.Message == "" || inside == "" {
		return
	}
	for _, m := range c.config.GetMounts() {
		if m.GetContainerPath() == inside {
			// The agent created this file; if it is missing, the agent reads no message.
			appendTo(m.GetHostPath(), os.O_WRONLY, how.Message)
		}
	}
}

// writeLog appends one line in CRI's log format, if the container's log directory exists.
func writeLog(c *container, line string) {
	path := logPath(c)
	if path == "" {
		return
	}
	stamp := time.Now().UTC().Format(time.RFC3339Nano)
	appendTo(path, os.O_CREATE|os.O_WRONLY, stamp+" stdout F "+line+"\n")
}

// appendTo ignores errors: a container's output is lost if its file cannot be written.
func appendTo(path string, flags int, text string) {
	f, err := os.OpenFile(path, flags|os.O_APPEND, 0o640)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	_, _ = f.WriteString(text)
}
