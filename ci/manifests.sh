#!/usr/bin/env bash
# Writes the formula for Homebrew and the manifests for winget beside the archives of a release, from their checksums:
# `bash ci/manifests.sh FOLDER [ADDRESS]`. ADDRESS is that of the repository, which Cargo.toml has otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh

folder=${1:?the folder of the archives} version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
address=${2:-$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
[ -n "$address" ] || fail "the address of the repository is not set: docs/releasing.md"
download=$address/releases/download/v$version
about="Run commands with timeouts, limits and reports"
# Prints the checksum of an archive.
sum() {
    awk -v file="pipewright-$version-$1" '$2 == file {print $1; found = 1} END {exit !found}' "$folder/SHA256SUMS" ||
        fail "no archive for $1"
}
intel=x86_64-unknown-linux-musl.tar.gz arm=aarch64-unknown-linux-musl.tar.gz windows=x86_64-pc-windows-gnu.zip
sum_intel=$(sum "$intel") sum_arm=$(sum "$arm") sum_windows=$(sum "$windows")

# For Linux: there is no archive for macOS, where the tool was never run.
cat > "$folder/pipewright.rb" << END
class Pipewright < Formula
  desc "$about"
  homepage "$address"
  version "$version"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on :linux

  on_intel do
    url "$download/pipewright-$version-$intel"
    sha256 "$sum_intel"
  end
  on_arm do
    url "$download/pipewright-$version-$arm"
    sha256 "$sum_arm"
  end

  def install
    bin.install "pipewright"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/pipewright.bash" => "pipewright"
    fish_completion.install "completions/pipewright.fish"
    zsh_completion.install "completions/pipewright.zsh" => "_pipewright"
  end

  test do
    assert_equal "hi\n", shell_output("#{bin}/pipewright run --timeout 10s -- echo hi")
  end
end
END

winget=$folder/winget id=Pipewright.Pipewright
mkdir -p "$winget"
manifest() { # FILE TYPE, and the rest from stdin
    { printf '# yaml-language-server: $schema=https://aka.ms/winget-manifest.%s.1.9.0.schema.json\n' "$2"
      printf 'PackageIdentifier: %s\nPackageVersion: %s\n' "$id" "$version"
      cat
      printf 'ManifestType: %s\nManifestVersion: 1.9.0\n' "$2"; } > "$winget/$1"
}
manifest "$id.yaml" version <<< "DefaultLocale: en-US"
manifest "$id.installer.yaml" installer << END
InstallerType: zip
NestedInstallerType: portable
NestedInstallerFiles:
  - RelativeFilePath: pipewright-$version-x86_64-pc-windows-gnu\\pipewright.exe
    PortableCommandAlias: pipewright
Installers:
  - Architecture: x64
    InstallerUrl: $download/pipewright-$version-$windows
    InstallerSha256: ${sum_windows^^}
END
manifest "$id.locale.en-US.yaml" defaultLocale << END
PackageLocale: en-US
Publisher: The pipewright developers
PackageName: pipewright
PackageUrl: $address
License: MIT OR Apache-2.0
LicenseUrl: $address/blob/v$version/LICENSE-MIT
ShortDescription: $about
END
say "$(cd "$folder" && echo pipewright.rb winget/*)"
