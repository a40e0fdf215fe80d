-- name: conduct
SELECT heard, turned, asked, refused, since IS NOT NULL FROM conduct WHERE task = ?1

-- name: put-conduct
INSERT INTO conduct (task, heard, turned, asked, refused) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (task) DO UPDATE SET heard = ?2, turned = ?3, asked = ?4, refused = ?5

-- name: hold-task
INSERT INTO conduct (task, since, person, why) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (task) DO UPDATE SET since = ?2, person = ?3, why = ?4

-- name: holds-of-tasks
SELECT task, since, person, why FROM conduct WHERE since IS NOT NULL ORDER BY task

-- name: forgive-task
DELETE FROM conduct WHERE task = ?1
