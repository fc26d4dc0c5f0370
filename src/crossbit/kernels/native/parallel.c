#include "parallel.h"

#if defined(_WIN32)

void parallel(void (*work)(void *task, size_t worker), void *task, size_t workers)
{
    (void)workers;
    work(task, 0);
}

#else

#include <pthread.h>
#include <stdlib.h>

typedef struct {
    void (*work)(void *task, size_t worker);
    void *task;
    size_t worker;
    pthread_t thread;
} Helper;

static void *help(void *argument)
{
    Helper *helper = argument;
    helper->work(helper->task, helper->worker);
    return NULL;
}

void parallel(void (*work)(void *task, size_t worker), void *task, size_t workers)
{
    Helper *helpers = workers > 1 ? malloc((workers - 1) * sizeof *helpers) : NULL;
    size_t started = 0;
    for (; helpers && started < workers - 1; started++) {
        helpers[started] = (Helper){.work = work, .task = task, .worker = started + 1};
        if (pthread_create(&helpers[started].thread, NULL, help, &helpers[started]) != 0)
            break;
    }
    work(task, 0);
    for (size_t i = 0; i < started; i++)
        pthread_join(helpers[i].thread, NULL);
    free(helpers);
}

#endif
