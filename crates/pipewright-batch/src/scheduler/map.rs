//! A hash map with a fixed key, so that nothing in the scheduler depends on chance.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

/// A builder of hashers with the same key in every process.
pub(super) type Hashing = BuildHasherDefault<DefaultHasher>;

/// A hash map. Its order is never used for decisions.
pub(super) type Map<K, V> = HashMap<K, V, Hashing>;
