//! Sources of jobs: lines, words, JSON lines, CSV and cross products, all lazy.
