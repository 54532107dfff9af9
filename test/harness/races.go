package harness

import (
	"os"
	"path/filepath"
	"strings"
)

// raceLog is the prefix of the files in which processes report races, one file each. A process
// reports a race as soon as it finds it, so the report survives a kill.
const raceLog = "race"

// raceOptions returns the environment variables that make a process report races in dir and go on.
func raceOptions(dir string) []string {
	if !raced {
		return nil
	}
	options := os.Getenv("GORACE") + " halt_on_error=0 log_path=" + filepath.Join(dir, raceLog)
	return []string{"GORACE=" + strings.TrimSpace(options)}
}

// races returns the reports in dir, of ended and of running processes.
func races(dir string) string {
	files, err := filepath.Glob(filepath.Join(dir, raceLog+".*"))
	if err != nil {
		return err.Error()
	}
	var found strings.Builder
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			raw = []byte(err.Error())
		}
		found.Write(raw)
	}
	return found.String()
}
