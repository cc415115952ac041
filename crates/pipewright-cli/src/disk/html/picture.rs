//! The times of a test, and the classes of its requests, as bars.

use std::fmt::Write as _;

use pipewright_disk::Class;
use pipewright_disk::diagnosis::Measured;

use super::escape;
use crate::disk::sentence;

/// Draws the time in which the requests were queued above that in which they were completed: the caller was busy during the
/// first, and free during the rest of the second. The sentences below say the same.
pub(super) fn times(page: &mut String, measured: &Measured) {
    let (queued, completed) = (measured.queued.as_secs_f64(), measured.completed.as_secs_f64());
    let busy = (1.0 - measured.free_share()) * 100.0;
    let said = [sentence::times(measured), sentence::order(measured)];
    // Writing to a String does not fail.
    let _ = writeln!(
        page,
        "<div class=\"bars\" role=\"img\" aria-label=\"{}\">\n\
         <span>queued</span><span class=\"track\"><i class=\"busy\" style=\"width:{busy:.1}%\"></i></span>\
         <span class=\"num\">{queued:.4} s</span>\n\
         <span>completed</span><span class=\"track\"><i class=\"done\" style=\"width:100%\"></i></span>\
         <span class=\"num\">{completed:.4} s</span>\n</div>",
        escape(&said[0]),
    );
    for said in &said {
        let _ = writeln!(page, "<p class=\"said\">{}</p>", escape(said));
    }
}

/// Draws the share of each class. Requests of unknown class are left empty.
pub(super) fn classes(page: &mut String, measured: &Measured) {
    let requests = measured.evidence.requests.max(1);
    let counts = Class::ALL.iter().map(|class| (class, measured.evidence.count(*class)));
    let counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    if counts.is_empty() {
        return;
    }
    page.push_str("<div class=\"bars\"><span>classes</span><span class=\"track\">");
    for (class, count) in &counts {
        let share = *count as f64 / requests as f64 * 100.0;
        let _ = write!(page, "<i class=\"{}\" style=\"width:{share:.1}%\"></i>", class.name());
    }
    let _ =
        writeln!(page, "</span><span class=\"num\">{requests}</span></div>\n<ul class=\"legend\">");
    for (class, count) in &counts {
        let _ = writeln!(page, "<li><i class=\"{}\"></i>{count} {class}</li>", class.name());
    }
    page.push_str("</ul>\n");
}
