package harness

import (
	"os"
	"path/filepath"
	"strings"
)

// raceLog is the beginning of the names of the files in which processes report races, one each,
// as soon as they find one: what was reported stays when the process is killed.
const raceLog = "race"

// raceOptions are what a process needs in its environment to report races in dir and go on.
func raceOptions(dir string) []string {
	if !raced {
		return nil
	}
	options := os.Getenv("GORACE") + " halt_on_error=0 log_path=" + filepath.Join(dir, raceLog)
	return []string{"GORACE=" + strings.TrimSpace(options)}
}

// races are the reports in dir, of processes that have ended or still run.
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
