//! Cycles in a graph of jobs, found without recursion.

/// Returns cycles such that every job that can never start is in one of them, or waits for one.
///
/// An edge is a job and one that it waits for, both below `jobs`. In a cycle each job waits for the next, and the last one
/// for the first; the first one has the lowest number. No two cycles share a job. Takes O(jobs + edges).
pub(crate) fn cycles(jobs: usize, edges: &[(usize, usize)]) -> Vec<Vec<usize>> {
    let unmet = unmet_at_the_end(jobs, edges);
    // Each job that is left waits for another one that is left. One such edge a job leads from any of them into a cycle.
    let mut next: Vec<Option<usize>> = vec![None; jobs];
    for &(job, awaited) in edges {
        // A job that waits for one that is left is left, too.
        if unmet[awaited] > 0 {
            next[job].get_or_insert(awaited);
        }
    }
    let mut walked_from: Vec<Option<usize>> = vec![None; jobs];
    let mut found = Vec::new();
    for start in 0..jobs {
        let mut at = start;
        while let (None, Some(following)) = (walked_from[at], next[at]) {
            walked_from[at] = Some(start);
            at = following;
        }
        // A walk that meets an older walk leads into a cycle that is known.
        if walked_from[at] == Some(start) {
            found.push(cycle_through(at, &next));
        }
    }
    found
}

/// Lets all jobs end that can, and returns the number of jobs that each one still waits for.
fn unmet_at_the_end(jobs: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut unmet = vec![0; jobs];
    // The dependents of a job are `dependents[ends[job - 1]..ends[job]]`.
    let mut ends = vec![0; jobs];
    for &(job, awaited) in edges {
        unmet[job] += 1;
        ends[awaited] += 1;
    }
    let mut total = 0;
    for end in &mut ends {
        let count = *end;
        *end = total;
        total += count;
    }
    let mut dependents = vec![0; edges.len()];
    for &(job, awaited) in edges {
        dependents[ends[awaited]] = job;
        ends[awaited] += 1;
    }
    let mut can_end: Vec<usize> = (0..jobs).filter(|job| unmet[*job] == 0).collect();
    while let Some(job) = can_end.pop() {
        let start = job.checked_sub(1).map_or(0, |before| ends[before]);
        for &dependent in &dependents[start..ends[job]] {
            unmet[dependent] -= 1;
            if unmet[dependent] == 0 {
                can_end.push(dependent);
            }
        }
    }
    unmet
}

fn cycle_through(job: usize, next: &[Option<usize>]) -> Vec<usize> {
    let mut cycle = vec![job];
    let mut at = next[job];
    while let Some(member) = at.filter(|member| *member != job) {
        cycle.push(member);
        at = next[member];
    }
    let lowest = cycle.iter().enumerate().min_by_key(|(_, job)| **job);
    let first = lowest.map_or(0, |(place, _)| place);
    cycle.rotate_left(first);
    cycle
}
