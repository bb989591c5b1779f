//! Ctrl-C: a request to stop while something is listening, the end of the process otherwise.
//!
//! ```text
//! nobody listens         exit 130 at once
//! first, while listening set the flag; the work stops at its next step
//! second                 exit 130 at once, however deep the work is
//! ```
//!
//! Invariant: two Ctrl-C always end the process, unless a chat took the first for its reply.
//! Not here: what stopping means (the commands).

use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::exit::INTERRUPTED;
use crate::output::note;

/// Listeners at the moment; stops are only polite while there is one.
static LISTENERS: AtomicU32 = AtomicU32::new(0);

fn flag() -> &'static Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(|| Arc::new(AtomicBool::new(false)))
}

/// Installs the handler.
///
/// # Errors
/// When the system refuses, for instance because another one is installed.
pub(crate) fn install() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        let listening = LISTENERS.load(Ordering::SeqCst) > 0;
        if !listening || flag().swap(true, Ordering::SeqCst) {
            note!("error: interrupted");
            process::exit(i32::from(INTERRUPTED));
        }
    })?;
    Ok(())
}

/// While this lives, the first Ctrl-C only sets the flag.
pub(crate) struct Listening {
    stop: Arc<AtomicBool>,
}

/// Starts listening with the flag cleared.
pub(crate) fn listen() -> Listening {
    flag().store(false, Ordering::SeqCst);
    LISTENERS.fetch_add(1, Ordering::SeqCst);
    Listening { stop: Arc::clone(flag()) }
}

impl Listening {
    /// The flag, to hand to the work.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Whether Ctrl-C was pressed.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        LISTENERS.fetch_sub(1, Ordering::SeqCst);
    }
}
