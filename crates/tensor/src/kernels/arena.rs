//! Memory for packed weights: one mapping for a whole model, on large pages where the system gives them.
//!
//! A pass streams all weights, so with 4 KiB pages a good part of its time goes into address translation. Pages come
//! zeroed and untouched, so that the packing threads are the first to touch them.
//!
//! Invariant: regions of one arena never overlap, and each is writable only through its one owner.
//! Not here: what lies in a region (`matrix`).

use std::io;
use std::sync::Arc;

use memmap2::{MmapMut, MmapRaw};

/// Regions start at multiples of a cache line, which is also the widest register.
const ALIGN: usize = 64;

/// Large pages start at multiples of their size.
const LARGE_PAGE: usize = 2 << 20;

/// Room for packed weights, handed out from the front.
#[derive(Debug)]
pub struct Arena {
    map: Arc<MmapRaw>,
    next: usize,
}

impl Arena {
    /// Room for regions of `bytes` together, as [`Kernels::packed_bytes`](super::Kernels::packed_bytes) counts them.
    ///
    /// # Errors
    /// When the system has no such room.
    pub fn new(bytes: usize) -> io::Result<Arena> {
        let too_much = || io::Error::from(io::ErrorKind::OutOfMemory);
        let len = bytes.checked_add(LARGE_PAGE).ok_or_else(too_much)?;
        let map = MmapMut::map_anon(len)?;
        // A wish: without large pages everything works, only slower.
        #[cfg(target_os = "linux")]
        let _without = map.advise(memmap2::Advice::HugePage);
        let next = map.as_ptr().align_offset(LARGE_PAGE);
        Ok(Arena { map: Arc::new(map.into()), next })
    }

    /// Bytes a region of `len` takes.
    pub(super) fn rounded(len: usize) -> usize {
        len.next_multiple_of(ALIGN)
    }

    /// The next `len` bytes, all zero.
    ///
    /// # Panics
    /// When the arena was made for less.
    pub fn bytes(&mut self, len: usize) -> Region {
        let end = self.next + Arena::rounded(len);
        assert!(end <= self.map.len(), "the arena is too small for its weights");
        let region = Region { map: Arc::clone(&self.map), start: self.next, len };
        self.next = end;
        region
    }
}

/// Bytes of an [`Arena`] with one owner.
#[derive(Debug)]
pub struct Region {
    map: Arc<MmapRaw>,
    start: usize,
    len: usize,
}

impl Region {
    /// Number of bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range lies inside the mapping, which lives as long as `map`, is initialised (zeros), and is
        // written only through `bytes_mut` of this region, which is borrowed here.
        unsafe { std::slice::from_raw_parts(self.map.as_mut_ptr().add(self.start), self.len) }
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `bytes`; `Arena::bytes` gave this range to no other region, so the borrow of this one is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_mut_ptr().add(self.start), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_zeroed_aligned_and_apart() {
        let mut arena = Arena::new(Arena::rounded(100) + Arena::rounded(1) + Arena::rounded(0)).unwrap();
        let mut regions = [arena.bytes(100), arena.bytes(1), arena.bytes(0)];
        for region in &mut regions {
            assert_eq!(region.bytes().as_ptr().align_offset(ALIGN), 0);
            assert!(region.bytes().iter().all(|&b| b == 0));
            region.bytes_mut().fill(7);
        }
        drop(arena);
        assert_eq!(regions.map(|region| region.bytes().len()), [100, 1, 0]);
    }

    #[test]
    #[should_panic(expected = "too small")]
    fn an_arena_gives_no_more_than_it_has() {
        let mut arena = Arena::new(64).unwrap();
        arena.bytes(2 * LARGE_PAGE);
    }

    #[test]
    fn impossible_sizes_are_errors() {
        Arena::new(usize::MAX).unwrap_err();
    }
}
