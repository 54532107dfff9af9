// Package report renders the rig's results: as text for a terminal, and as one self-contained HTML
// file. Chart.js (MIT) draws its charts; assets/fetch.sh downloads it, verifies it and keeps it
// here.
package report
