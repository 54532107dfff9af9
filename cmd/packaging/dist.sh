#!/usr/bin/env bash
# Makes a release in dist/ (or the folder that is named): programs in packages (.deb, .rpm) and a tar
# file, images of the plugins, the Helm chart and manifests of their DaemonSets, what each program is
# made of (SBOM), licences, and checksums. The same commit, toolchain and C library give the same bytes;
# cmd/packaging/reproducible.sh looks. PROGRAMS=DIR takes programs that are built already.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-dist}
root=$PWD

# On its tag a release has the version of cmd/packaging/VERSION; before it, one that sorts below.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
next=$(<cmd/packaging/VERSION)
if [ -n "${VERSION:-}" ]; then
    version=${VERSION#v}
elif [ "$(git describe --tags --exact-match --dirty 2>/dev/null)" = "v$next" ]; then
    version=$next
else
    version=$next~git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$(git describe --always --exclude='*' --abbrev=12)
fi
build=$(git describe --tags --always --abbrev=12 --dirty)

umask 022
export TZ=UTC LC_ALL=C
export CGO_ENABLED=0 GOFLAGS=-trimpath
arch=$(go env GOARCH)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$out" "$stage"/{bin,manual,made}

say() { echo "dist: $*" >&2; }

# compile builds a program without what only debuggers read.
compile() { # CGO TO TAGS PROGRAM...
    local cgo=$1 to=$2 tags=$3
    shift 3
    CGO_ENABLED=$cgo CGO_CFLAGS="-O2 -Wno-deprecated-declarations" go build -tags "$tags" \
        -ldflags "-s -w -X github.com/numalet/numalet/internal/version.build=$build" -o "$to/" "${@/#/./cmd/}"
}

if [ -n "${PROGRAMS:-}" ]; then
    cp "$PROGRAMS"/{numalet,numalet-lab,numalet-gpu} "$stage/bin"
else
    cgo=1
    command -v "${CC:-gcc}" >/dev/null || {
        cgo=0
        say "there is no C compiler (${CC:-gcc}): numalet-gpu is built without NVIDIA's driver, for --mock only"
    }
    say "the programs are built"
    compile 0 "$stage/bin" "" numalet numalet-lab
    compile $cgo "$stage/bin" netgo,osusergo numalet-gpu # with these nothing else is compiled anew
fi
say "the manual pages are written"
cmd/packaging/manual.sh "$stage/manual"

go build -C cmd/packaging -o "$stage/packaging" .
made() { "$stage/packaging" -version "$version" -epoch "$SOURCE_DATE_EPOCH" -arch "$arch" -out "$stage/made" "$@"; }

say "packages, images, lists"
made notices "$stage/THIRD-PARTY" "$stage"/bin/numalet{,-lab,-gpu}
for program in numalet numalet-lab numalet-gpu; do
    cmd/packaging/install.sh install "$stage/$program" /usr "$stage/bin" "$stage/manual" $program
    install -D -m 644 "$stage/THIRD-PARTY" "$stage/$program/usr/share/doc/$program/THIRD-PARTY"
done
made packages "$stage"
made sbom "$stage"/bin/numalet{,-lab,-gpu}
made image gpu "$stage/bin/numalet-gpu"
made image eni "$stage/bin/numalet-lab"

# packed makes a tar file of a folder, without what the machine and the hour say of it.
packed() { # FOLDER NAME FILE
    tar -C "$1" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --format=gnu -cf - "$2" | gzip -9n >"$3"
}

name=numalet-$version-linux-$arch
cmd/packaging/install.sh install "$stage/tar" "/$name" "$stage/bin" "$stage/manual" numalet numalet-lab numalet-gpu
# The units look for the programs where the tar file is to be unpacked.
sed -i "s|/$name/|/usr/local/|g" "$stage/tar/$name"/lib/systemd/system/numalet.service{,.d/10-kubeadm.conf}
install -m 644 "$stage/THIRD-PARTY" "$stage/tar/$name/share/doc/numalet/THIRD-PARTY"
packed "$stage/tar" "$name" "$stage/made/$name.tar.gz"

mkdir "$stage/chart"
cp -r cmd/packaging/chart "$stage/chart/numalet-plugins"
tag=$(tr '~+' '--' <<<"$version")
sed -i "s/^version: .*/version: $tag/; s/^appVersion: .*/appVersion: \"$tag\"/" "$stage/chart/numalet-plugins/Chart.yaml"
packed "$stage/chart" numalet-plugins "$stage/made/numalet-plugins-$tag.tgz"
cp cmd/packaging/manifests/*.yaml "$stage/made"
sed -i "s|\(image: numalet.io/numalet-[a-z]*\):.*|\1:$tag|" "$stage"/made/*.yaml

(cd "$stage/made" && sha256sum -- * >SHA256SUMS)
rm -rf "${out:?}"/* # of an earlier version
cp "$stage"/made/* "$out"
say "$(cd "$root" && ls -d "$out") has version $version"
