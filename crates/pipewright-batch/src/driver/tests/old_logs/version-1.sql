-- A log of version 1, as a program of that version has written it: dumped as SQL, with another host, boot and folder.
PRAGMA application_id = 1347904108;
PRAGMA foreign_keys = OFF;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY,
    job INTEGER NOT NULL REFERENCES jobs (id),
    run INTEGER NOT NULL REFERENCES runs (number),
    attempt INTEGER NOT NULL,
    slot INTEGER,
    started REAL NOT NULL,
    elapsed_seconds REAL,
    outcome TEXT NOT NULL,
    code INTEGER,
    signal INTEGER,
    user_seconds REAL,
    system_seconds REAL,
    peak_rss_bytes INTEGER,
    stdout_bytes INTEGER NOT NULL,
    stderr_bytes INTEGER NOT NULL,
    leftovers_killed INTEGER NOT NULL,
    error TEXT,
    output_path TEXT,
    stderr_tail TEXT
);
INSERT INTO "attempts" VALUES(1,2,1,1,2,1.79584427090266609194e+09,0.010677168,'exited',3,NULL,0.000989,0.0,1425408,0,3,0,NULL,NULL,'no');
INSERT INTO "attempts" VALUES(2,7,1,1,2,1.7958442709241657257e+09,0.000930801,'not_started',NULL,NULL,NULL,NULL,NULL,0,0,0,'cannot start "./missing": no such file',NULL,NULL);
INSERT INTO "attempts" VALUES(3,4,1,1,4,1.79584427090623164179e+09,0.003691486,'signaled',NULL,9,0.000868,0.0,1609728,0,0,0,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(4,1,1,1,1,1.79584427089345550531e+09,0.018392163,'exited',0,NULL,0.000979,0.0,1359872,0,0,0,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(5,3,1,1,3,1.79584427090326714509e+09,0.315621815,'timed_out',NULL,NULL,0.00098,0.0,1609728,0,0,0,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(6,11,1,1,3,1.79584427122857666009e+09,3.678115728,'cancelled',NULL,NULL,0.000868,0.000163,1609728,0,0,0,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(7,8,1,1,2,1.79584427092519569391e+09,3.981898471,'cancelled',NULL,NULL,0.000979,0.0,1429504,0,0,0,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(8,9,1,1,NULL,1.79584427092852377894e+09,3.97862609700000025014e+00,'cancelled',NULL,NULL,0.000913,0.0,1482752,0,0,0,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(9,10,1,1,1,1.79584427092603754992e+09,3.982449818,'cancelled',NULL,NULL,0.0,0.000946,1642496,0,0,0,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(10,8,2,1,1,1.79584427501888585086e+09,NULL,'interrupted',NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(11,9,2,1,NULL,1.79584427501994943615e+09,NULL,'interrupted',NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(12,10,2,1,3,1.79584427501997947692e+09,NULL,'interrupted',NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,NULL);
CREATE TABLE batch (
    id TEXT NOT NULL,
    created REAL NOT NULL,
    tool_version TEXT NOT NULL,
    description TEXT NOT NULL
);
INSERT INTO "batch" VALUES('1b17d453d896b39256245bab516863f2',1.7958442708827779293e+09,'0.1.0','');
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY,
    identity BLOB NOT NULL,
    number INTEGER NOT NULL,
    line INTEGER,
    name TEXT,
    command TEXT NOT NULL,
    cwd TEXT,
    state TEXT NOT NULL,
    failure TEXT,
    reason TEXT,
    last_attempt INTEGER REFERENCES attempts (id)
);
INSERT INTO "jobs" VALUES(1,X'2D4A7AFC2C95918D5CF0740B3CC060F9',1,1,'done','sh -c ''read word; [ $word-$WORD = a-b ]''',NULL,'succeeded',NULL,NULL,4);
INSERT INTO "jobs" VALUES(2,X'4916BF3F4E5B141809A6E04B4629520E',2,2,'bad','sh -c ''echo no >&2; exit 3''',NULL,'failed','exit_code','exit code 3',1);
INSERT INTO "jobs" VALUES(3,X'CFCB4F7471C721D0309B2C33E26197B9',3,3,NULL,'sh -c ''sleep ${LONG:-0}''',NULL,'failed','timed_out','timed out',5);
INSERT INTO "jobs" VALUES(4,X'5999CF64B958EA74768888545C064BBA',4,4,NULL,'sh -c ''kill -9 $$''',NULL,'failed','signaled','killed by SIGKILL',3);
INSERT INTO "jobs" VALUES(5,X'68172808D7597D90C9DD0F50EE615E73',7,7,NULL,'true refused',NULL,'refused',NULL,'no job is named "nobody", which is in its "after"',NULL);
INSERT INTO "jobs" VALUES(6,X'DE04C8C8B94CA5337F016F9F59777ED8',6,6,NULL,'true skipped',NULL,'skipped',NULL,'job 2 did not succeed',NULL);
INSERT INTO "jobs" VALUES(7,X'3022E2C4B5767F5CFFFA281FEF3067B3',5,5,NULL,'./missing',NULL,'failed','start_failed','cannot start "./missing": no such file',2);
INSERT INTO "jobs" VALUES(8,X'10F9ED805379FE2E83570B87E951F789',8,8,NULL,'sh -c ''sleep ${LONG:-0}; echo started''',NULL,'started',NULL,NULL,10);
INSERT INTO "jobs" VALUES(9,X'D91177E23D4377C15F68D97CDC6A994B',9,9,NULL,'sh -c ''sleep ${LONG:-0}; echo once''',NULL,'unknown',NULL,NULL,11);
INSERT INTO "jobs" VALUES(10,X'DA50EDD3E250637497A089C4B7710582',10,10,NULL,'sh -c ''sleep ${LONG:-0}; echo interrupted''',NULL,'interrupted',NULL,NULL,12);
INSERT INTO "jobs" VALUES(11,X'24399C59F5BBF7AA0356605BC0FFEA28',11,11,NULL,'sh -c ''sleep ${LONG:-0}; echo stopped''',NULL,'stopped',NULL,NULL,6);
INSERT INTO "jobs" VALUES(12,X'3DDCAAFC5934CA9B6279C6F8C3B02E7E',12,12,NULL,'true ''not run''',NULL,'not_run',NULL,NULL,NULL);
CREATE TABLE running (
    job INTEGER PRIMARY KEY REFERENCES jobs (id),
    run INTEGER NOT NULL REFERENCES runs (number),
    attempt INTEGER NOT NULL,
    slot INTEGER,
    since REAL NOT NULL,
    once INTEGER NOT NULL
);
INSERT INTO "running" VALUES(8,3,1,1,1.79584427619063568114e+09,0);
CREATE TABLE runs (
    number INTEGER PRIMARY KEY,
    started REAL NOT NULL,
    ended REAL,
    how TEXT,
    exit_code INTEGER,
    slots INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    pid_start INTEGER,
    boot_id TEXT,
    host TEXT,
    cwd TEXT
);
INSERT INTO "runs" VALUES(1,1.79584427088295912749e+09,1.79584427490890598299e+09,'timed_out',124,4,6809,2907754,'00000000-0000-4000-8000-000000000000','machine','/home/me');
INSERT INTO "runs" VALUES(2,1.79584427499907779693e+09,NULL,'interrupted',NULL,3,10523,2908170,'00000000-0000-4000-8000-000000000000','machine','/home/me');
INSERT INTO "runs" VALUES(3,1.79584427611610794065e+09,NULL,NULL,NULL,1,11254,2908280,'00000000-0000-4000-8000-000000000000','machine','/home/me');
CREATE VIEW failures AS
    SELECT jobs.number, jobs.name, jobs.command, jobs.state, jobs.failure, jobs.reason,
        attempts.attempt, attempts.code, attempts.signal, attempts.elapsed_seconds, attempts.error,
        attempts.output_path, attempts.stderr_tail
    FROM jobs LEFT JOIN attempts ON attempts.id = jobs.last_attempt
    WHERE jobs.state IN ('failed', 'interrupted', 'unknown', 'refused')
    ORDER BY jobs.number;
COMMIT;
