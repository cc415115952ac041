-- A log of version 5, as a program of that version has written it: dumped as SQL, with another host, boot and folder.
PRAGMA application_id = 1347904108;
PRAGMA foreign_keys = OFF;
PRAGMA user_version = 5;
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
, node TEXT);
INSERT INTO "attempts" VALUES(1,4,1,1,4,1.79584461993686175353e+09,0.003152907,'signaled',NULL,9,0.000785,0.0,1527808,0,0,0,NULL,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(2,6,1,1,4,1.7958446199418637752e+09,0.000423408,'not_started',NULL,NULL,NULL,NULL,NULL,0,0,0,'cannot start "./missing": no such file',NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(3,1,1,1,1,1.79584461987402033804e+09,0.020966952,'exited',0,NULL,0.00092,0.0,1511424,0,0,0,NULL,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(4,2,1,1,2,1.79584461993513202666e+09,0.021837293,'exited',3,NULL,0.0,0.001061,1544192,0,3,0,NULL,NULL,'no',NULL);
INSERT INTO "attempts" VALUES(5,3,1,1,3,1.7958446199357306957e+09,0.304731791,'timed_out',NULL,NULL,0.001042,0.0,1634304,0,0,0,NULL,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(6,11,1,1,3,1.79584462024337434766e+09,3.633115145,'cancelled',NULL,NULL,0.001313,0.0,1642496,0,0,0,NULL,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(7,10,1,1,2,1.79584461996046590805e+09,3.916017334,'cancelled',NULL,NULL,0.001085,0.0,1617920,0,0,0,NULL,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(8,9,1,1,NULL,1.7958446200006577968e+09,3.875944522,'cancelled',NULL,NULL,0.001302,0.0,1605632,0,0,0,NULL,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(9,8,1,1,4,1.79584461994244813914e+09,3.934193497,'cancelled',NULL,NULL,0.000878,0.0,1544192,0,0,0,NULL,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(10,8,2,1,1,1.795844624182965517e+09,NULL,'interrupted',NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(11,10,2,1,2,1.79584462418453907972e+09,NULL,'interrupted',NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,NULL,NULL);
CREATE TABLE batch (
    id TEXT NOT NULL,
    created REAL NOT NULL,
    tool_version TEXT NOT NULL,
    description TEXT NOT NULL
);
INSERT INTO "batch" VALUES('bf2bcc6f6f6abc95f40d8c9473e8bc31',1.79584461982378292086e+09,'0.1.0','');
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
, settings TEXT DEFAULT '?', removed INTEGER REFERENCES runs (number));
INSERT INTO "jobs" VALUES(1,X'2D4A7AFC2C95918D5CF0740B3CC060F9',1,1,'done','sh -c ''read word; [ $word-$WORD = a-b ]''',NULL,'succeeded',NULL,NULL,3,'{"env":{"WORD":"b"},"stdin":"a\n"}',NULL);
INSERT INTO "jobs" VALUES(2,X'4916BF3F4E5B141809A6E04B4629520E',2,2,'bad','sh -c ''echo no >&2; exit 3''',NULL,'failed','exit_code','exit code 3',4,NULL,NULL);
INSERT INTO "jobs" VALUES(3,X'CFCB4F7471C721D0309B2C33E26197B9',3,3,NULL,'sh -c ''sleep ${LONG:-0}''',NULL,'failed','timed_out','timed out',5,'{"timeout":"0.3s"}',NULL);
INSERT INTO "jobs" VALUES(4,X'5999CF64B958EA74768888545C064BBA',4,4,NULL,'sh -c ''kill -9 $$''',NULL,'failed','signaled','killed by SIGKILL',1,NULL,NULL);
INSERT INTO "jobs" VALUES(5,X'68172808D7597D90C9DD0F50EE615E73',7,7,NULL,'true refused',NULL,'refused',NULL,'no job is named "nobody", which is in its "after"',NULL,'{"after":["nobody"]}',NULL);
INSERT INTO "jobs" VALUES(6,X'3022E2C4B5767F5CFFFA281FEF3067B3',5,5,NULL,'./missing',NULL,'failed','start_failed','cannot start "./missing": no such file',2,NULL,NULL);
INSERT INTO "jobs" VALUES(7,X'DE04C8C8B94CA5337F016F9F59777ED8',6,6,NULL,'true skipped',NULL,'skipped',NULL,'job 2 did not succeed',NULL,'{"after":["bad"]}',NULL);
INSERT INTO "jobs" VALUES(8,X'10F9ED805379FE2E83570B87E951F789',8,8,NULL,'sh -c ''sleep ${LONG:-0}; echo started''',NULL,'started',NULL,NULL,10,NULL,NULL);
INSERT INTO "jobs" VALUES(9,X'D91177E23D4377C15F68D97CDC6A994B',9,9,NULL,'sh -c ''sleep ${LONG:-0}; echo once''',NULL,'unknown',NULL,NULL,8,'{"once":true}',NULL);
INSERT INTO "jobs" VALUES(10,X'DA50EDD3E250637497A089C4B7710582',10,10,NULL,'sh -c ''sleep ${LONG:-0}; echo interrupted''',NULL,'interrupted',NULL,NULL,11,NULL,NULL);
INSERT INTO "jobs" VALUES(11,X'24399C59F5BBF7AA0356605BC0FFEA28',11,11,NULL,'sh -c ''sleep ${LONG:-0}; echo stopped''',NULL,'stopped',NULL,NULL,6,NULL,NULL);
INSERT INTO "jobs" VALUES(12,X'3DDCAAFC5934CA9B6279C6F8C3B02E7E',12,12,NULL,'true ''not run''',NULL,'not_run',NULL,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES(13,X'F03E0B6083D6BC04C25160A5F0AF5889',13,13,NULL,'true waiting',NULL,'waiting',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE running (
    job INTEGER PRIMARY KEY REFERENCES jobs (id),
    run INTEGER NOT NULL REFERENCES runs (number),
    attempt INTEGER NOT NULL,
    slot INTEGER,
    since REAL NOT NULL,
    once INTEGER NOT NULL
, pid INTEGER, pid_start INTEGER);
INSERT INTO "running" VALUES(8,3,1,1,1.7958446252188944817e+09,0,4321,98765);
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
, jobs INTEGER, input TEXT, remote INTEGER NOT NULL DEFAULT 0, id TEXT, command TEXT);
INSERT INTO "runs" VALUES(1,1.79584461982390403752e+09,1.79584462387778425211e+09,'timed_out',124,4,18857,2942651,'00000000-0000-4000-8000-000000000000','machine','/home/me',12,NULL,0,'1209455a37268606ece858a5c2c0deca','batch');
INSERT INTO "runs" VALUES(2,1.79584462392959523201e+09,NULL,'interrupted',NULL,2,19639,2943062,'00000000-0000-4000-8000-000000000000','machine','/home/me',13,NULL,0,'9271869911eda4c8d06dc04d7ffd073e','batch');
INSERT INTO "runs" VALUES(3,1.79584462513095402718e+09,NULL,NULL,NULL,1,20069,2943182,'00000000-0000-4000-8000-000000000000','machine','/home/me',13,NULL,0,'77789082408f661510bd1881e797a4cb','batch');
CREATE VIEW failures AS
    SELECT jobs.number, jobs.name, jobs.command, jobs.state, jobs.failure, jobs.reason,
        attempts.attempt, attempts.code, attempts.signal, attempts.elapsed_seconds, attempts.error,
        attempts.output_path, attempts.stderr_tail
    FROM jobs LEFT JOIN attempts ON attempts.id = jobs.last_attempt
    WHERE jobs.state IN ('failed', 'interrupted', 'unknown', 'refused')
    ORDER BY jobs.number;
CREATE TRIGGER jobs_end BEFORE UPDATE OF state ON jobs
WHEN OLD.state <> NEW.state AND (OLD.state = 'succeeded' OR OLD.state IN ('failed', 'unknown')
    AND NEW.state <> 'started' AND NEW.last_attempt IS OLD.last_attempt)
BEGIN SELECT RAISE(ABORT, 'the end of a job is final'); END;
COMMIT;
